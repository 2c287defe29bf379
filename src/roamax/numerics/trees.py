"""Arithmetic on pytrees of arrays, and names for their leaves.

`optax.tree` offers zeros, sizes and norms too, but importing it takes a third of a second, and its sums do not keep the
dtypes of the first tree, as `linear` does.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roamax.errors import InputError, check
from roamax.numerics import noise
from roamax.types import Batch, Key, Params


def zeros_like(tree: Params) -> Params:
    return jax.tree.map(jnp.zeros_like, tree)


def linear(*terms: tuple[jax.Array | float, Params]) -> Params:
    """Return the sum of scalar * tree over `terms`, in the dtypes of the first tree.

    Scalars are cast leaf by leaf: a float32 schedule must not promote float16 parameters to float32.
    """
    scalars, operands = zip(*terms, strict=True)

    def combine(*leaves: jax.Array) -> jax.Array:
        dtype = leaves[0].dtype
        return sum(jnp.asarray(scalar, dtype) * leaf for scalar, leaf in zip(scalars, leaves, strict=True))  # type: ignore

    return jax.tree.map(combine, *operands)


def at(tree: Any, index: Any) -> Any:
    """Return the tree of `leaf[index]`."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def stack(all_trees: Iterable[Any]) -> Any:
    """Stack the leaves of several trees along a new leading axis, as NumPy arrays."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *all_trees)


def size(tree: Params) -> int:
    """Return the number of scalars in a tree."""
    return sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(tree))


def inner(first: Params, second: Params) -> jax.Array:
    """Return the sum of the products of two trees' entries."""
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return jnp.asarray(sum(jnp.sum(a * b) for a, b in pairs))


def squared_norm(tree: Params) -> jax.Array:
    return inner(tree, tree)


def normal_like(key: Key, tree: Params) -> Params:
    """Draw independent standard normal numbers in the shapes and dtypes of `tree`.

    The generator is called once per dtype and its result split into leaves, which for deep networks is far cheaper
    than a key and a call per leaf.
    """
    leaves, treedef = jax.tree.flatten(tree)
    drawn: list[Any] = [None] * len(leaves)
    for index, dtype in enumerate(dict.fromkeys(jnp.result_type(leaf) for leaf in leaves)):
        members = [i for i, leaf in enumerate(leaves) if jnp.result_type(leaf) == dtype]
        sizes = [math.prod(jnp.shape(leaves[i])) for i in members]
        own_key, total = jax.random.fold_in(key, index), sum(sizes)
        is_alone = len(members) == 1
        flat = noise.normal(own_key, (total,), dtype) if is_alone else noise.normal_for_many(own_key, total, dtype)
        start = 0
        for i, count in zip(members, sizes, strict=True):
            drawn[i] = flat[start : start + count].reshape(jnp.shape(leaves[i]))
            start += count
    return jax.tree.unflatten(treedef, drawn)


def stationary_momentum(key: Key, position: Params, temperature: jax.Array | float) -> Params:
    """Draw a momentum from N(0, T I), its stationary law; at T = 0 it is 0."""
    return linear((jnp.sqrt(jnp.asarray(temperature, float)), normal_like(key, position)))


def leading_length(tree: Batch, argument: str) -> int:
    """Return the leading length that all arrays of `tree` share, or raise an `InputError`."""
    shapes = {path_name(path): jnp.shape(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    check(len(shapes) > 0, argument, "hold at least one array", "an empty tree")
    for name, shape in shapes.items():
        check(len(shape) >= 1, argument, "hold arrays with a leading axis", f"a scalar at {name!r}")
    lengths = {name: shape[0] for name, shape in shapes.items()}
    if len(set(lengths.values())) != 1:
        found = ", ".join(f"{name!r}: {length}" for name, length in lengths.items())
        raise InputError(f"`{argument}` must hold arrays of one leading length; got {found}.")
    length = next(iter(lengths.values()))
    check(length >= 1, argument, "not be empty", f"length {length}")
    return length


def on_device(tree: Any, argument: str) -> Any:
    """Return the tree with its leaves, anything that NumPy reads as numbers, as JAX arrays.

    JAX keeps 32 bits of whole numbers: 2**32 would become 0, which here is an `InputError`.
    """

    def convert(path: Any, leaf: Any) -> jax.Array:
        if isinstance(leaf, jax.Array):
            return leaf
        array = np.asarray(leaf)
        where = f"at {path_name(path)!r}" if path else ""
        check(array.dtype.kind in "biufcV", argument, "hold numbers", f"{array.dtype} {where}")
        converted = jnp.asarray(array)
        if array.dtype.kind in "iu" and array.dtype != converted.dtype and array.size:
            limits = jnp.iinfo(converted.dtype)
            fits = limits.min <= array.min() and array.max() <= limits.max
            check(bool(fits), argument, f"hold whole numbers that fit {limits.bits} bits", f"larger ones {where}")
        return converted

    return jax.tree_util.tree_map_with_path(convert, tree)


def arrays_of(tree: Any) -> Any:
    """Return the tree with data frames and series, which NumPy reads but JAX does not, as NumPy arrays."""
    if isinstance(tree, Iterator):
        return tree
    return jax.tree.map(lambda leaf: np.asarray(leaf) if hasattr(leaf, "to_numpy") else leaf, tree)


def path_name(path: tuple[Any, ...]) -> str:
    """Return the path of a leaf as text, such as `params/Dense_0/kernel`; a `/` within a key is escaped."""
    parts = (jax.tree_util.keystr((entry,), simple=True) for entry in path)
    return "/".join(part.replace("~", "~0").replace("/", "~1") for part in parts)


def named_leaves(tree: Params) -> dict[str, Any]:
    """Return the leaves of a tree by the names of their paths, in the tree's order."""
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def masked(tree: Params, part: str) -> Params:
    """Return the tree with zeros in all leaves whose names do not contain `part`."""
    leaves = [leaf if part in name else 0 * leaf for name, leaf in named_leaves(tree).items()]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def from_named_leaves(leaves: dict[str, Any]) -> Any:
    """Return nested dictionaries of named leaves; a bare array is named ''."""
    if set(leaves) == {""}:
        return leaves[""]
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in name.split("/"))
        node = tree
        for part in parents:
            node = node.setdefault(part, {})
            check(isinstance(node, dict), "names", "not lead through another leaf", repr(name)[:80])
        check(last not in node, "names", "not lead through another leaf", repr(name)[:80])
        node[last] = leaf
    return tree
