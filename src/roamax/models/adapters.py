"""Adapters from flax and equinox modules to `Model`: pure functions on nested dictionaries of arrays."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from roamax.errors import check
from roamax.models.model import Model, as_floats, initial_dtype, parameter_dtype
from roamax.numerics import trees
from roamax.types import Key, Params


def from_linen(module: Any, *, name: str | None = None, tokens: bool = False) -> Model:
    """Make a `Model` from a `flax.linen` module that has no state other than its parameters.

    Args:
        module: The module.
        name: The name of the model; None is that of the module's class.
        tokens: Whether inputs are token ids, which are left as they are; other inputs are cast to the dtype of the
            parameters, and bytes are scaled to [0, 1].

    Returns:
        The network as two pure functions.
    """

    def init(key: Key, example_x: Any) -> Params:
        example = jax.ShapeDtypeStruct(jnp.shape(example_x), jnp.result_type(example_x) if tokens else jnp.float32)
        variables = module.lazy_init(key, example)
        check(set(variables) == {"params"}, "module", "hold nothing but parameters", f"also {sorted(variables)}")
        return _cast(variables["params"], initial_dtype(example_x))

    def apply(params: Params, x: Any) -> Any:
        return module.apply({"params": params}, _inputs(x, params, tokens))

    return Model(name or type(module).__name__, init, apply)


def from_nnx(build: Callable[[Any], Any], *, name: str | None = None, tokens: bool = False) -> Model:
    """Make a `Model` from a `flax.nnx` module.

    Its `nnx.Param` variables are the parameters. It runs in evaluation mode: dropout is off, and all other state stays
    as built. To start every chain from a trained module, use `from_nnx(lambda rngs: module)`.

    Args:
        build: A function that builds the module from `nnx.Rngs`.
        name: The name of the model; None is that of the module's class.
        tokens: As in `from_linen`.

    Returns:
        The network as two pure functions.
    """
    from flax import nnx

    module = build(nnx.Rngs(0))
    module.eval()
    graph, template, rest = nnx.split(module, nnx.Param, ...)

    def init(key: Key, example_x: Any) -> Params:
        return _cast(_to_plain(nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))), initial_dtype(example_x))

    def apply(params: Params, x: Any) -> Any:
        state = jax.tree.map(lambda leaf: leaf, template)
        nnx.replace_by_pure_dict(state, _from_plain(params, nnx.to_pure_dict(template)))
        return nnx.merge(graph, state, rest)(_inputs(x, params, tokens))

    return Model(name or type(module).__name__, init, apply)


def from_equinox(
    build: Callable[[Key], Any], *, name: str | None = None, tokens: bool = False, batched: bool = False
) -> Model:
    """Make a `Model` from an equinox module.

    Its floating-point arrays are the parameters. Equinox modules take a single example, and are vmapped over the batch
    here. To start every chain from a trained module, use `from_equinox(lambda key: module)`.

    Args:
        build: A function that builds the module from a key.
        name: The name of the model; None is that of the module's class.
        tokens: As in `from_linen`.
        batched: Whether the module takes a whole batch, and is not to be vmapped.

    Returns:
        The network as two pure functions.
    """
    import equinox as eqx

    module = eqx.nn.inference_mode(build(jax.random.key(0)))
    template, static = eqx.partition(module, eqx.is_inexact_array)

    def init(key: Key, example_x: Any) -> Params:
        return _cast(_to_plain(eqx.filter(build(key), eqx.is_inexact_array)), initial_dtype(example_x))

    def apply(params: Params, x: Any) -> Any:
        network = eqx.combine(_from_plain(params, template), static)
        return (network if batched else jax.vmap(network))(_inputs(x, params, tokens))

    return Model(name or type(module).__name__, init, apply)


def _inputs(x: Any, params: Params, tokens: bool) -> jax.Array:
    return jnp.asarray(x) if tokens else as_floats(x, parameter_dtype(params))


def _cast(params: Params, dtype: Any) -> Params:
    return jax.tree.map(lambda leaf: leaf.astype(dtype), params)


def _to_plain(tree: Any) -> Params:
    return trees.from_named_leaves(trees.named_leaves(tree))


def _from_plain(params: Params, template: Any) -> Any:
    """Put the arrays of `params` into the structure of `template`, by name, as their orders may differ."""
    leaves = trees.named_leaves(params)
    return jax.tree.unflatten(jax.tree.structure(template), [leaves[name] for name in trees.named_leaves(template)])
