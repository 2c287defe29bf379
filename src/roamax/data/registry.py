"""The data sets by name. To add one, add a record here and, if its format is new, a reader in `formats`.

Checksums are those of the publishers (Zenodo and MedMNIST), or those that TensorFlow Datasets and torchvision list for
the same files: SHA-256 if published, otherwise MD5. If there is none, `checksum` is None: then the size is checked, and
the SHA-256 of the first download is recorded in the data directory and required from then on.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from roamax.data import toys
from roamax.data.formats import cifar, idx, images, matlab, npz, reviews


class File(NamedTuple):
    """A published file: its path in the data directory, its URLs, size and checksum."""

    path: str
    urls: tuple[str, ...]
    num_bytes: int
    checksum: str | None


class Entry(NamedTuple):
    """A data set. `read` returns its arrays, given the paths of its files in order.

    `num_train` and `num_test` are the published sizes, `shape` is that of one example, `classes` is 0 for real targets.
    Data that are `slow` to parse are cached as `NAME.npz` in the data directory. `num_valid` is the number of training
    examples that the paper holds out, 0 if it does not say.
    """

    what: str
    classes: int
    shape: tuple[int, ...]
    num_train: int
    num_test: int
    licence: str
    read: Callable[..., dict[str, np.ndarray]]
    files: tuple[File, ...] = ()
    slow: bool = False
    num_valid: int = 0


def _idx_files(folder: str, roots: tuple[str, ...], checksums: tuple[tuple[int, str], ...]) -> tuple[File, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(
        File(
            f"{folder}/{name}-ubyte.gz",
            tuple(f"{root}/{name}-ubyte.gz" for root in roots),
            num_bytes,
            f"sha256:{sha256}",
        )
        for name, (num_bytes, sha256) in zip(names, checksums, strict=True)
    )


_GREY, _COLOUR = (28, 28, 1), (32, 32, 3)
_RESEARCH = "research only (ImageNet)"
_GAP = partial(toys.regression_1d, intervals=((-5.0, -1.0), (1.0, 4.0)))
_EMNIST = File(
    "emnist/gzip.zip",
    (
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
    ),
    561_753_746,
    "sha256:fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
)
_TINY_IMAGENET = File(
    "tiny_imagenet/tiny-imagenet-200.zip",
    (
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        "https://zenodo.org/records/10720917/files/tiny-imagenet-200.zip?download=1",
    ),
    248_100_043,
    "md5:90528d7ca1a48142e341f4ef8d21d0de",
)

# fmt: off
REGISTRY: dict[str, Entry] = {
    "mnist": Entry("handwritten digits", 10, _GREY, 60_000, 10_000, "CC BY-SA 3.0", idx.mnist,
        _idx_files("mnist",
            ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
            ((9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
             (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
             (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
             (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6")))),
    "fashion_mnist": Entry("articles of clothing", 10, _GREY, 60_000, 10_000, "MIT", idx.mnist,
        _idx_files("fashion_mnist",
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
            ((26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
             (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
             (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
             (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5")))),
    "emnist_balanced": Entry("handwritten digits and letters", 47, _GREY, 112_800, 18_800, "none stated (NIST)",
        idx.emnist("balanced", 0), (_EMNIST,)),
    "emnist_letters": Entry("handwritten letters, upper and lower case merged", 26, _GREY, 124_800, 20_800,
        "none stated (NIST)", idx.emnist("letters", 1), (_EMNIST,)),
    "bloodmnist": Entry("blood cells", 8, (28, 28, 3), 11_959, 3_421, "CC BY 4.0", npz.medmnist,
        (File("bloodmnist/bloodmnist.npz",
              ("https://zenodo.org/records/10519652/files/bloodmnist.npz?download=1",),
              35_500_000, "md5:7053d0359d879ad8a5505303e11de1dc"),)),
    "dermamnist": Entry("skin lesions", 7, (28, 28, 3), 7_007, 2_005, "CC BY-NC 4.0", npz.medmnist,
        (File("dermamnist/dermamnist.npz",
              ("https://zenodo.org/records/10519652/files/dermamnist.npz?download=1",),
              19_700_000, "md5:0744692d530f8e62ec473284d019b0c7"),)),
    "cifar10": Entry("photographs, 10 classes", 10, _COLOUR, 50_000, 10_000, "none stated", cifar.cifar10,
        (File("cifar10/cifar-10-binary.tar.gz",
              ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
              170_052_171, "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),),
        num_valid=9_040),
    "cifar100": Entry("photographs, 100 classes", 100, _COLOUR, 50_000, 10_000, "none stated", cifar.cifar100,
        (File("cifar100/cifar-100-binary.tar.gz",
              ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
              168_513_733, "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),),
        num_valid=9_040),
    "svhn": Entry("house numbers, cropped digits", 10, _COLOUR, 73_257, 26_032, "non-commercial", matlab.svhn,
        (File("svhn/train_32x32.mat",
              ("http://ufldl.stanford.edu/housenumbers/train_32x32.mat",),
              182_040_794, "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
         File("svhn/test_32x32.mat",
              ("http://ufldl.stanford.edu/housenumbers/test_32x32.mat",),
              64_275_384, "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),)),
    "tiny_imagenet": Entry("photographs, 200 classes, 64 × 64", 200, (64, 64, 3), 100_000, 10_000, _RESEARCH,
        images.tiny_imagenet(64), (_TINY_IMAGENET,), slow=True),
    "tiny_imagenet_32": Entry("photographs, 200 classes, at half size", 200, _COLOUR, 100_000, 10_000, _RESEARCH,
        images.tiny_imagenet(32), (_TINY_IMAGENET,), slow=True),
    "cifar10_c": Entry("CIFAR-10's test set under 15 corruptions × 5 severities", 10, _COLOUR, 0, 750_000, "CC BY 4.0",
        cifar.cifar10_c,
        (File("cifar10_c/CIFAR-10-C.tar",
              ("https://zenodo.org/records/2535967/files/CIFAR-10-C.tar?download=1",),
              2_918_471_680, "sha256:c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7"),)),
    "notmnist": Entry("letters A to J in many fonts, for out-of-distribution", 10, _GREY, 0, 18_724, "none stated",
        images.notmnist,
        (File("notmnist/notMNIST_small.tar.gz",
              ("http://yaroslavvb.com/upload/notMNIST/notMNIST_small.tar.gz",
               "https://commondatastorage.googleapis.com/books1000/notMNIST_small.tar.gz"),
              8_458_043, None),), slow=True),
    "imdb": Entry("film reviews as token ids, negative or positive", 2, (400,), 25_000, 25_000, "none stated",
        reviews.imdb,
        (File("imdb/aclImdb_v1.tar.gz",
              ("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
              84_125_825, "sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"),), slow=True),
    "digits": Entry("handwritten digits, 8 × 8, from scikit-learn", 10, (8, 8, 1), 1_437, 360, "CC BY 4.0",
        toys.digits),
    "regression_1d": Entry("y = sin(x) on [-5, 1] and [1, 4]", 0, (1,), 1_000, 1_000, "made", toys.regression_1d),
    "regression_1d_gap": Entry("y = sin(x) on [-5, -1] and [1, 4]", 0, (1,), 1_000, 1_000, "made", _GAP),
    "two_moons": Entry("two half circles in the plane", 2, (2,), 1_000, 1_000, "made", toys.two_moons),
    "ring_of_gaussians": Entry("eight Gaussians in the plane", 8, (2,), 1_000, 1_000, "made", toys.ring_of_gaussians),
}
# fmt: on
