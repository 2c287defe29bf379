"""A convolution in `lax.scan` on CPU, forward and both gradients, vs. those of PyTorch and XLA.

The implementations that were tried, by `python -m benchmarks conv-ways`: milliseconds at 8, 16 and 32 channels on two
cores (wall-clock) and on one (CPU time), on a Xeon with AVX-512. `roamax.models.conv` uses the best of each column.

    forward  XLA's own                                              2.8   4.2  15.3 |   5.4   8.0  15.1
    forward  nine shifted products, summed                          4.6  12.2  26.1 |   7.5  19.9  48.9
    forward  patches, one product, chunks of 16                     4.9  11.9  25.7 |   8.1  18.7  41.1
    forward  columns, one product, rows summed                      2.4   8.0  17.2 |   4.5  13.0  31.9
    forward  columns, one product, rows summed, chunks of 8         3.7  10.3  20.0 |   3.5   9.7  27.0
    forward  XLA's own on groups of 2 outputs, chunks of 4          2.5   6.6  22.6 |   3.6   6.1  21.1
    forward  XLA's own on groups of 2 outputs                       1.7   5.7  19.8 |   3.2   5.6  20.0
    forward  XLA's own on groups of 4 outputs                       2.4   8.6  31.2 |   2.6   7.8  30.5
    forward  XLA's own, 16 pieces                                   3.8   7.7  10.8 |   6.0   9.3  17.2
    forward  XLA's own on groups of 2 outputs, 8 pieces             2.1   5.9  19.4 |   3.3   5.7  19.6
    forward  XLA's own on groups of 2 outputs, 16 pieces            2.3   4.4  13.5 |   3.7   6.2  21.4
    forward  XLA's own on groups of 4 outputs, 16 pieces            1.8   5.7  20.0 |   2.8   8.8  32.3
    gradient patches by g, one product                             10.9  21.4  52.6 |  20.9  42.9 107.6
    gradient patches by g, chunks of 8                              7.0  14.3  36.6 |  11.8  23.6  70.4
    gradient nine shifted products, chunks of 8                     9.5  12.3  26.1 |   9.4  16.6  58.9
    gradient images as channels of a convolution, chunks of 16      4.0   9.1  25.7 |   4.4   8.9  25.4
    gradient columns of x by rows of g, one product                 3.1   8.9  28.3 |   5.4  14.5  44.4
    gradient columns of x by rows of g, chunks of 8                 3.6   7.6  22.5 |   4.1  10.6  37.8
    gradient columns of x by rows of g, chunks of 2                 3.8   7.6  25.0 |   3.8   7.7  30.6
    gradient columns of x by rows of g, chunks of 1                 3.9  11.5  24.8 |   4.0   7.8  24.3
    gradient columns of x by rows of g, stacks of 2, chunks of 8    3.5   6.5  17.6 |   4.0  10.2  36.3
    gradient columns of x by rows of g, stacks of 2, chunks of 16   3.1   6.7  17.2 |   4.9  11.4  36.9
    gradient columns of x by rows of g, stacks of 4, chunks of 16   3.1   6.7  17.2 |   4.9  11.1  36.5
    gradient columns of x by rows of g, x transposed, chunks of 1   4.8  10.9  31.4 |   4.8  10.8  28.0

All three products, by `python -m benchmarks conv --one-core --no-xla`: CPU milliseconds at 8, 16 and 32 channels on an
AMD EPYC. XLA compiles products and convolutions to calls of YNNPACK unless told not to; single layers take the same
time either way, and networks with dense layers longer without, so roamax leaves that option alone.

    PyTorch                                                        10.8  23.3  73.4
    PyTorch, channels last                                          7.6  17.3  60.2
    roamax                                                          9.9  25.3  76.6
    roamax, no YNNPACK                                             10.4  24.8  79.9
"""

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from benchmarks.timing import Turn, seconds_of, take_turns
from roamax.cli.arguments import Flag
from roamax.host import files

Measure = Callable[[Turn], float]
NO_YNNPACK = {"xla_cpu_experimental_ynn_fusion_type": ""}
"""Products and convolutions by XLA's own code."""


class Layer(NamedTuple):
    """A convolution and the images it is applied to."""

    channels: int
    features: int
    size: int = 28
    window: int = 3
    stride: int = 1
    batch: int = 128
    first: bool = False  # the gradient with respect to the images is not needed

    def __str__(self) -> str:
        return f"{self.channels}->{self.features} {self.window}x{self.window}/{self.stride} on {self.size}x{self.size}"


MARK = [Layer(8, 8), Layer(16, 16), Layer(32, 32)]
OTHERS = [
    Layer(1, 16, first=True),
    Layer(3, 16, size=32, first=True),
    Layer(16, 16, size=32),
    Layer(16, 32, size=32, stride=2),
    Layer(32, 32, size=16),
    Layer(32, 64, size=16, stride=2),
    Layer(64, 64, size=8),
    Layer(16, 32, size=32, window=1, stride=2),
]


def jax_run(convolve: Callable[..., Any], layer: Layer, steps: int, options: dict[str, Any] | None = None) -> Turn:
    """Return a turn of a compiled loop in which each step moves the images and the kernel along their gradients."""
    import jax

    size, window = layer.size, layer.window
    x = jax.random.normal(jax.random.key(0), (layer.batch, size, size, layer.channels))
    kernel = jax.random.normal(jax.random.key(1), (window, window, layer.channels, layer.features)) / 10

    def step(carry: Any, _: None) -> Any:
        y, pull = jax.vjp(lambda x, kernel: convolve(x, kernel, layer.stride), *carry)
        moved = [value + 1e-6 * gradient for value, gradient in zip(carry, pull(y), strict=True)]
        return (carry[0] if layer.first else moved[0], moved[1]), None

    run = jax.jit(lambda carry: jax.lax.scan(step, carry, None, length=steps)[0], compiler_options=options)
    loop = run.lower((x, kernel)).compile()
    return lambda: jax.block_until_ready(loop((x, kernel)))


def torch_run(layer: Layer, steps: int, channels_last: bool = False) -> Turn:
    import torch

    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.randn(layer.batch, layer.channels, layer.size, layer.size).to(memory_format=layout)
    kernel = torch.randn(layer.features, layer.channels, layer.window, layer.window).to(memory_format=layout) / 10
    learned = [kernel.requires_grad_()] if layer.first else [x.requires_grad_(), kernel.requires_grad_()]

    def loop() -> None:
        for _ in range(steps):
            y = torch.nn.functional.conv2d(x, kernel, stride=layer.stride, padding=layer.window // 2)
            gradients = torch.autograd.grad(y, learned, y.detach())
            with torch.no_grad():
                for value, gradient in zip(learned, gradients, strict=True):
                    value.add_(gradient, alpha=1e-6)

    return loop


def xla_convolve(x: Any, kernel: Any, stride: int = 1) -> Any:
    from jax import lax

    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def measure(layer: Layer, rounds: int, steps: int, with_xla: bool, timed: Measure) -> dict[str, list[float]]:
    """Return the milliseconds per step, by contestant and round. XLA is so slow that one step is enough."""
    from roamax.models.conv import conv2d

    runs = {
        "PyTorch": torch_run(layer, steps),
        "PyTorch, channels last": torch_run(layer, steps, channels_last=True),
        "roamax": jax_run(conv2d, layer, steps),
        "roamax, no YNNPACK": jax_run(conv2d, layer, steps, NO_YNNPACK),
    }
    if with_xla:
        runs["XLA"] = jax_run(xla_convolve, layer, 1)
    found = take_turns(runs, rounds, timed)
    return {name: [1e3 * t / (1 if name == "XLA" else steps) for t in series] for name, series in found.items()}


def report(layer: Layer, times: dict[str, list[float]]) -> dict[str, Any]:
    rows = {}
    for name, series in times.items():
        ratio = statistics.median(t / mark for t, mark in zip(series, times["PyTorch"], strict=True))
        rows[name] = {"ms": statistics.median(series), "ratio": ratio}
        print(f"{layer!s:28} {name:24} {rows[name]['ms']:9.2f} ms {ratio:8.2f} x PyTorch", flush=True)
    return {"layer": layer._asdict(), "contestants": rows}


def timed_on(one_core: bool) -> Measure:
    """Return a function that times a turn: wall-clock on all cores, or CPU time on one, if JAX has no threads yet."""
    if not one_core:
        return seconds_of
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ["OMP_NUM_THREADS"] = "1"
    return partial(seconds_of, clock=time.process_time)


def compare(
    rounds: int = 9,
    steps: int = 8,
    one_core: Flag = False,
    no_xla: Flag = False,
    all_layers: Flag = False,
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
) -> None:
    """Compare the convolution in `lax.scan` with those of PyTorch and XLA.

    Times the forward pass and both gradients. The contestants take turns in
    every round; the table has the median time per step and the median over
    rounds of the ratio to PyTorch in its default layout. Needs the extra `torch`.

    Examples:
        python -m benchmarks conv
        python -m benchmarks conv --one-core

    Args:
        rounds: Turns per contestant, after one to warm up.
        steps: Steps of the loop per turn.
        one_core: Measure CPU time on one core, which other programs hardly affect.
        no_xla: Leave out XLA's convolution, which takes seconds.
        all_layers: Also measure first layers, strides, and the layers of ResNets.
        out: A JSON file to write the table to.
    """
    timed = timed_on(one_core)
    layers = MARK + OTHERS * all_layers
    table = [report(layer, measure(layer, rounds, steps, layer in MARK and not no_xla, timed)) for layer in layers]
    if out is not None:
        files.write_json(out, table)
