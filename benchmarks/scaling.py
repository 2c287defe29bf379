"""A model of cost beyond one machine: time and memory of a step on a mesh of accelerators, and meta-training on Ray.

What the model assumes about the program is checked on eight CPU devices by `tests/test_sharding.py`: the collectives of
a sharded step, the numbers they carry, and the memory of a device.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.growth import FLOAT, network_flops, state_floats
from roamax.report.table import Column, from_records, markdown
from roamax.samplers.learned.l2e import DECAYS, WIDTHS

PARAMETERS = (10**6, 10**7, 10**8, 10**9)
DEVICES = (1, 8, 64)
WORKERS = (16, 256, 4096)
GRADIENT_FLOPS = 6
"""Operations per parameter and example: two forward, four backward, if each weight is used once."""
WHOLE_FLOATS = 3
"""Floats per parameter that are replicated on every device: position, gradient, next position."""
NARROW = (WIDTHS[0], 8, 8, WIDTHS[-1])
"""A smaller network, of which the table also has the cost."""


class Accelerator(NamedTuple):
    """The speeds of a device and of the links between devices, in round numbers for a data centre."""

    flops: float = 50e12
    """Operations per second in practice, below the peak."""
    memory: float = 2e12
    """Bytes per second to and from memory."""
    link: float = 200e9
    """Bytes per second from a device to the next."""
    latency: float = 20e-6
    """Seconds of a collective without any data."""


class Collective(NamedTuple):
    """A collective of the compiled step, and how many numbers it carries."""

    kind: str
    floats: int


class Cost(NamedTuple):
    """The seconds of the parts of a step, and the bytes that each device holds."""

    gradient: float
    update: float
    communication: float
    memory: float

    @property
    def seconds(self) -> float:
        """Return the seconds of the whole step, where nothing overlaps."""
        return self.gradient + self.update + self.communication


def collectives(parameters: int, tensors: int) -> list[Collective]:
    """Return the collectives of a sharded step of L2E with two passes.

    Summed are the gradients of the devices' examples, the mean squares of nine features per tensor, and then that of
    the new momentum; the new position is gathered.
    """
    features = 3 + len(DECAYS)
    return [
        Collective("all-reduce", parameters),
        Collective("all-reduce", features * tensors),
        Collective("all-reduce", tensors),
        Collective("all-gather", parameters),
    ]


def seconds_of(collective: Collective, devices: int, accelerator: Accelerator) -> float:
    """Return the seconds of a ring: every device sends all numbers but its shard, and twice for a sum."""
    if devices == 1:
        return 0.0
    turns = 2 if collective.kind == "all-reduce" else 1
    sent = turns * (devices - 1) / devices * FLOAT * collective.floats
    return accelerator.latency * math.log2(devices) + sent / accelerator.link


def step(
    parameters: int,
    devices: int,
    *,
    examples: int = 1024,
    tensors: int = 100,
    sampler: str = "L2E",
    widths: Sequence[int] = WIDTHS,
    accelerator: Accelerator | None = None,
) -> Cost:
    """Return the cost of a step of SGHMC, replicated on every device, or of L2E, whose state and network are sharded.

    In both, examples are sharded over devices. `widths` are those of the network.
    """
    machine = accelerator or Accelerator()
    is_spread = sampler == "L2E"
    share = parameters / devices if is_spread else parameters
    gradient = GRADIENT_FLOPS * parameters * examples / devices / machine.flops
    computed = network_flops(widths) * share / machine.flops if is_spread else 0.0
    moved = 2 * FLOAT * state_floats(sampler) * share / machine.memory
    needed = collectives(parameters, tensors) if is_spread else [Collective("all-reduce", parameters)]
    communication = sum(seconds_of(one, devices, machine) for one in needed)
    return Cost(
        gradient, max(computed, moved), communication, FLOAT * floats_held(parameters, devices, sampler, widths)
    )


def floats_held(parameters: int, devices: int, sampler: str = "L2E", widths: Sequence[int] = WIDTHS) -> float:
    """Count the numbers that a device holds at the peak of a step, without activations.

    Temporary ones are the features of the network and its hidden units, per parameter of a shard.
    """
    if sampler != "L2E":
        return (state_floats(sampler) + 2) * parameters
    own = state_floats("L2E") - 1 + sum(widths[:-1])
    return WHOLE_FLOATS * parameters + own * parameters / devices


def busy_share(workers: int, unroll_seconds: float, message_seconds: float = 1e-3) -> float:
    """Return the share of time that Ray workers compute, if the driver starts and collects jobs one by one.

    A job is a task's name, a key and a sign, and its result a few numbers, so the time of a message does not depend on
    the task, and workers wait only as long as the driver needs for the messages of all of them.
    """
    return unroll_seconds / (unroll_seconds + workers * message_seconds)


def step_table() -> str:
    """Return a table of steps from 10⁶ to 10⁹ parameters, in Markdown."""
    rows: list[dict[str, Any]] = []
    for parameters in PARAMETERS:
        for devices in DEVICES:
            cost, plain = step(parameters, devices), step(parameters, devices, sampler="SGHMC")
            parts = {name: 1e3 * getattr(cost, name) for name in ("gradient", "update", "communication", "seconds")}
            narrow = step(parameters, devices, widths=NARROW)
            against = {"ratio": cost.seconds / plain.seconds, "memory": cost.memory / 1e9,
                       "narrow": narrow.seconds / plain.seconds, "narrow_memory": narrow.memory / 1e9}  # fmt: skip
            rows.append({"parameters": parameters, "devices": devices, **parts, **against})
    columns = [Column("parameters", "parameters", ",d"), Column("devices", "devices", "d"),
               Column("gradient", "gradient / ms", ".3g"), Column("update", "update / ms", ".3g"),
               Column("communication", "communication / ms", ".3g"), Column("seconds", "step / ms", ".3g"),
               Column("ratio", "vs. SGHMC", ".2f"), Column("memory", "GB per device", ".3g"),
               Column("narrow", "8 units vs. SGHMC", ".2f"),
               Column("narrow_memory", "8 units, GB per device", ".3g")]  # fmt: skip
    return markdown(from_records(columns, rows))


def worker_table() -> str:
    """Return a table of the share of time that workers compute, by their number and the duration of a job."""
    lengths = (1.0, 15.0, 120.0)
    columns = [Column("workers", "workers", ",d"), *(Column(str(s), f"jobs of {s:g} s", ".0%") for s in lengths)]
    rows = [{"workers": count, **{str(s): busy_share(count, s) for s in lengths}} for count in WORKERS]
    return markdown(from_records(columns, rows))
