"""A tree of parameters as one array of groups, and features normalised by their RMS over each tensor.

A learned sampler treats all scalar parameters alike, but normalises their features tensor by tensor. So the leaves of a
tree are concatenated, each padded with zeros to whole groups of 64 numbers. Each group belongs to one tensor: values
that differ between tensors are stored per group, and one kernel updates the whole tree. A large tree is padded with
further groups of zeros, counted as its last tensor's, so that the cores get equal shares: XLA:CPU runs a loop that it
cannot split evenly several times slower. The array can also be sharded over the devices of a mesh, each of which then
stores and updates its share of the groups.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from roamax.numerics import noise
from roamax.types import Key, Params

GROUP = 64
SHARES, WORTH_SHARING = 48, 128
"""More than `WORTH_SHARING` groups are padded to a multiple of `SHARES`."""
STABILISER = 1e-5
SHRINK = 2.0**-20
"""Features are scaled by this before squaring: up to 1e20 does not overflow, and a power of two loses no precision."""


@dataclass(frozen=True)
class Groups:
    """The layout of the leaves of a tree in an array of shape (groups, 64)."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    mesh: Mesh | None = None
    """The devices over which the groups are sharded."""

    @classmethod
    def of(cls, tree: Params, mesh: Mesh | None = None) -> "Groups":
        """Return the layout of trees like `tree`."""
        leaves, treedef = jax.tree.flatten(tree)
        return cls(treedef, tuple(map(jnp.shape, leaves)), tuple(map(jnp.result_type, leaves)), mesh)

    @cached_property
    def dtype(self) -> Any:
        """Double precision if any leaf has it, else single: running averages in half precision would get stuck."""
        return jnp.dtype(jnp.float64 if jnp.dtype(jnp.float64) in self.dtypes else jnp.float32)

    @cached_property
    def sizes(self) -> list[int]:
        """The number of scalars in each leaf."""
        return [math.prod(shape) for shape in self.shapes]

    @cached_property
    def owners(self) -> np.ndarray:
        """The index of the leaf that each group belongs to."""
        counts = [-(-size // GROUP) for size in self.sizes]
        if self.mesh is not None or sum(counts) > WORTH_SHARING:
            counts[-1] += -sum(counts) % self.shares
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    @cached_property
    def shares(self) -> int:
        """The number that the groups of a large tree are padded to a multiple of."""
        return SHARES if self.mesh is None else math.lcm(SHARES, self.mesh.size)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a packed tree."""
        return len(self.owners), GROUP

    def pack(self, tree: Params) -> jax.Array:
        """Return the scalars of a tree as an array (groups, 64)."""
        flat, start = jax.lax.optimization_barrier(jnp.zeros(math.prod(self.shape), self.dtype)), 0
        # Not one concatenation: XLA:CPU fuses it into a loop that took 14 ms for 90,000 numbers, or hardly any time,
        # depending on the addresses of its buffers.
        for leaf, size in zip(jax.tree.leaves(tree), self.sizes, strict=True):
            flat = jax.lax.dynamic_update_slice(flat, jnp.ravel(leaf).astype(self.dtype), (start,))
            start += size + -size % GROUP
        return self.spread(self._whole(flat).reshape(self.shape))

    def unpack(self, groups: jax.Array) -> Params:
        """Invert `pack`; the padding is dropped."""
        flat, leaves, start = self._whole(groups).reshape(-1), [], 0
        for shape, dtype, size in zip(self.shapes, self.dtypes, self.sizes, strict=True):
            leaves.append(flat[start : start + size].reshape(shape).astype(dtype))
            start += size + -size % GROUP
        return jax.tree.unflatten(self.treedef, leaves)

    def noise(self, key: Key) -> jax.Array:
        """Draw standard normal numbers, (groups, 64)."""
        return self.spread(noise.normal(key, self.shape, self.dtype))

    def spread(self, groups: jax.Array) -> jax.Array:
        """Shard an array with a leading axis of groups over the mesh, if there is one."""
        if self.mesh is None:
            return groups
        return jax.lax.with_sharding_constraint(groups, NamedSharding(self.mesh, PartitionSpec(self.mesh.axis_names)))

    def _whole(self, numbers: jax.Array) -> jax.Array:
        """Replicate an array on every device of the mesh.

        Shards and tensors have different boundaries: to convert directly, XLA would send each tensor piece by piece.
        """
        if self.mesh is None:
            return numbers
        return jax.lax.with_sharding_constraint(numbers, NamedSharding(self.mesh, PartitionSpec()))

    def without_filling(self, groups: jax.Array) -> jax.Array:
        """Return `groups` with zeros in the padding."""
        counts = [np.minimum(GROUP, np.arange(size, 0, -GROUP)) for size in self.sizes]
        used = np.concatenate(counts) if counts else np.zeros(0, int)
        used = np.pad(used, (0, len(self.owners) - len(used))).astype(np.int32)
        return jnp.where(jnp.arange(GROUP, dtype=jnp.int32)[None] < used[:, None], groups, 0)

    def inverse_rms(self, feature: jax.Array) -> jax.Array:
        """Return 1 / sqrt(mean square + 1e-5) over the tensor that each group belongs to.

        `feature` is (groups, 64) or (k, groups, 64), with zeros in the padding; the result lacks the last axis.
        """
        squares = jnp.sum(jnp.square(SHRINK * feature), axis=-1)
        totals = jax.ops.segment_sum(squares.T, self.owners, len(self.sizes), indices_are_sorted=True)
        sizes = jnp.asarray(np.maximum(self.sizes, 1), self.dtype)
        means = totals / jnp.expand_dims(sizes, tuple(range(1, totals.ndim)))
        return SHRINK * jax.lax.rsqrt(means + SHRINK**2 * STABILISER)[self.owners].T

    def normalised(self, feature: jax.Array) -> jax.Array:
        """Divide a feature, (groups, 64) or (k, groups, 64), by its root mean square over each tensor."""
        return feature * self.inverse_rms(feature)[..., None]

    def normalised_slope(self, feature: jax.Array) -> jax.Array:
        """Return the derivative of each element of `normalised(feature)` by the same element of `feature`.

        With n numbers x in a tensor and s = 1 / sqrt(mean(x^2) + 1e-5), it is s (1 - (s x)^2 / n), since each x also
        affects the root mean square of its tensor.
        """
        scale = self.inverse_rms(feature)[..., None]
        sizes = np.maximum(self.sizes, 1)[self.owners].astype(self.dtype)
        return scale * (1 - jnp.square(scale * feature) / sizes[:, None])
