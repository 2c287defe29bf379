"""The samplers of `roamax.torch` at their defaults, vs. averaged snapshots of SGD and SGHMC of posteriors.

A multilayer perceptron on the first 10,000 images of Fashion-MNIST, batches of 128, 40 epochs, weight decay 5e-4. SGD
and all kinds of SGHMC have learning rate 0.1 and momentum 0.9, L2E the settings of its card. SGHMC of posteriors also
runs at a tenth of that learning rate: it moves parameters before it updates the momentum, which is stable for shorter
steps only. Each method averages the
probabilities of 20 networks: cyclical those at the ends of 20 cycles of 2 epochs, all others those after each of the
last 20 epochs. Scores are those of the 10,000 test images, mean ± standard deviation over seeds. A step is timed as CPU
time in one thread, from the first to the last of a run.
"""

import time
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from benchmarks.peers import missing
from roamax import data
from roamax.errors import check
from roamax.host import files

EPOCHS, DRAWS, BATCH, NUM_DATA = 40, 20, 128, 10_000
LR, MOMENTUM, DECAY = 0.1, 0.9, 5e-4
COLD = 0.05
"""The default temperature of `roamax.torch.SGHMC`."""


def problem():
    """Return training and test tensors."""
    import torch

    fashion = data.load("fashion_mnist")
    return [
        (torch.tensor(x.reshape(len(x), -1) / np.float32(255)), torch.tensor(np.asarray(y)).long())
        for x, y in ((fashion.x_train[:NUM_DATA], fashion.y_train[:NUM_DATA]), (fashion.x_test, fashion.y_test))
    ]


def network():
    from torch import nn

    return nn.Sequential(nn.Linear(28 * 28, 100), nn.ReLU(), nn.Linear(100, 10))


def snapshots_of_sgd(model, loader):
    """Yield the parameters of a network trained by SGD after each of the last epochs."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    for epoch in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if epoch >= EPOCHS - DRAWS:
            yield {name: p.detach().numpy().copy() for name, p in model.named_parameters()}


def draws_of_posteriors(model, loader, lr):
    """Yield the same of SGHMC in posteriors, with the same step: epsilon = sqrt(lr / N), friction = decay / epsilon."""
    import torch
    from posteriors.sgmcmc import sghmc  # pyright: ignore[reportMissingImports]

    def log_posterior(params, batch):
        x, y = batch
        logits = torch.func.functional_call(model, params, x)
        prior = sum((leaf**2).sum() for leaf in params.values()) * DECAY / 2
        return -NUM_DATA * (torch.nn.functional.cross_entropy(logits, y) + prior), logits.detach()

    epsilon = (lr / NUM_DATA) ** 0.5
    transform = sghmc.build(log_posterior, lr=epsilon, alpha=(1 - MOMENTUM) / epsilon, temperature=COLD)
    state = transform.init({name: leaf.detach() for name, leaf in model.named_parameters()})
    for epoch in range(EPOCHS):
        for batch in loader:
            state, _ = transform.update(state, batch, inplace=True)
        if epoch >= EPOCHS - DRAWS:
            yield {name: leaf.numpy().copy() for name, leaf in state.params.items()}


def methods():
    """Return for each method a function of a network and a loader that returns draws."""
    from roamax.torch import L2E, SGHMC, Cyclical, sample

    def ours(*sampler, **settings):
        return lambda model, loader: sample(model, loader, *sampler, num_samples=DRAWS, **settings)

    found = {
        "SGD, snapshots": snapshots_of_sgd,
        f"`sample`, by default: `SGHMC`, T = {COLD}": ours(),
        "`SGHMC`, T = 1": ours(SGHMC, temperature=1.0),
        "`Cyclical`, T = 1": ours(Cyclical),
        "`L2E`, T = 1": ours(L2E),
    }
    if not missing("posteriors"):
        for lr in (LR, LR / 10):
            found[f"posteriors: SGHMC, T = {COLD}, lr = {lr:g}"] = partial(draws_of_posteriors, lr=lr)
    return found


def measure(run, seed):
    """Return the scores of one run."""
    import torch

    from roamax.torch import predict

    (x, y), (x_test, y_test) = problem()
    torch.manual_seed(seed)
    model = network()
    dataset = torch.utils.data.TensorDataset(x, y)
    order = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(dataset), BATCH, drop_last=False)
    # A sampler of whole batches: rows are gathered in one call instead of one by one.
    loader = torch.utils.data.DataLoader(dataset, sampler=order, batch_size=None)
    begun = time.process_time()
    draws = list(run(model, loader))
    seconds = time.process_time() - begun
    check(len(draws) == DRAWS, "draws", f"be {DRAWS} per method", len(draws))
    probabilities = predict(model, draws, x_test)
    return {
        "accuracy": float((probabilities.argmax(1) == y_test).float().mean()),
        "nll": float(-probabilities[torch.arange(len(y_test)), y_test].log().mean()),
        "milliseconds": 1e3 * seconds / (EPOCHS * len(loader)),
    }


def as_markdown(results):
    rows = ["| method | accuracy | NLL | CPU ms per step |", "| --- | --- | --- | --- |"]
    for label, scores in results.items():
        accuracy, nll = (f"{np.mean(scores[name]):.4f} ± {np.std(scores[name]):.4f}" for name in ("accuracy", "nll"))
        rows.append(f"| {label} | {accuracy} | {nll} | {np.mean(scores['milliseconds']):.1f} |")
    return "\n".join(rows)


def compare(
    seeds: int = 3,
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
) -> None:
    """Compare the samplers of roamax.torch with SGD and with posteriors.

    Example:
        python -m benchmarks pytorch --seeds 3 --out pytorch.json

    Args:
        seeds: Number of seeds.
        out: A JSON file to write the numbers to; the table goes next to it, as Markdown.
    """
    import torch

    torch.set_num_threads(1)
    results = {}
    for label, run in methods().items():
        runs = [measure(run, seed) for seed in range(seeds)]
        results[label] = {name: [scores[name] for scores in runs] for name in runs[0]}
        print(as_markdown({label: results[label]}).splitlines()[-1], flush=True)
    if out is not None:
        files.write_json(out, results)
        out.with_suffix(".md").write_text(as_markdown(results) + "\n")
