"""The contract of a sampler. A new one is a row in `SAMPLERS`."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import roamax
from roamax.errors import InputError
from roamax.numerics import noise
from roamax.samplers.registry import RECORDS

NUM_DATA, BATCH = 24, 8


def learned(family_of):
    """A learned sampler with weights as they are drawn before any training."""

    def make(posterior):
        family = family_of()
        return family.bind(jax.jit(family.init)(jax.random.key(7)), posterior)

    return make


SAMPLERS = {
    "sgld": lambda p: roamax.sgld(p, step_size=1e-3),
    "psgld": lambda p: roamax.psgld(p, step_size=1e-3),
    "psgld-gamma": lambda p: roamax.psgld(p, step_size=1e-3, include_gamma=True),
    "sghmc": lambda p: roamax.sghmc(p, step_size=1e-2, friction=1.0),
    "sgnht": lambda p: roamax.sgnht(p, step_size=1e-2, friction=1.0),
    "sms_ubu": lambda p: roamax.sms_ubu(p, step_size=1e-2, friction=1.0),
    "px_sghmc": lambda p: roamax.px_sghmc(p, step_size=1e-2, friction=1.0),
    "mile": lambda p: roamax.mile(p),
    "smile": lambda p: roamax.smile(p, step_size=1e-2, friction=1.0),
    "sa_sgld": lambda p: roamax.sa_sgld(p, step_size=1e-3, memory=1),
    "entropy_mcmc": lambda p: roamax.entropy_mcmc(p, step_size=1e-3),
    "entropy_mcmc-anchor": lambda p: roamax.entropy_mcmc(p, step_size=1e-3, draws="anchor"),
    "cyclical": lambda p: roamax.cyclical(p, step_size=1e-2, friction=1.0, cycle_length=10, exploration_ratio=0.1),
    "cyclical-sgld": lambda p: roamax.cyclical(
        p, step_size=1e-3, cycle_length=10, exploration_ratio=0.1, kernel="sgld"
    ),
    "hmc": lambda p: roamax.hmc(p, num_integration_steps=3),
    "nuts": lambda p: roamax.nuts(p),
    "ensemble": lambda p: roamax.ensemble(p, member_steps=10, temperature=1.0),
    "l2e": learned(lambda: roamax.l2e_family(step_size=1e-2, friction=0.1)),
    "l2e-one-pass": learned(lambda: roamax.l2e_family(step_size=1e-2, friction=0.1, passes=1)),
    "kinetic_l2e": learned(lambda: roamax.kinetic_l2e_family(step_size=1e-2, friction=0.1)),
    "kinetic_l2e-exact": learned(
        lambda: roamax.kinetic_l2e_family(step_size=1e-2, friction=0.1, differentiate_gradient=True)
    ),
    "precond_l2e": learned(lambda: roamax.precond_l2e_family(step_size=1e-2, friction=0.1)),
    "meta_sgmcmc": learned(lambda: roamax.meta_sgmcmc_family(step_size=1e-3)),
    "meta_sgmcmc-differences": learned(lambda: roamax.meta_sgmcmc_family(step_size=1e-3, gamma="finite_difference")),
    "roam": learned(lambda: roamax.roam_family(cycle_length=10, exploration_ratio=0.1)),
    "roam-hand-made": lambda p: roamax.roam(p, None, cycle_length=10, exploration_ratio=0.1),
}
# Of the variants of one sampler, the one that does most.
OTHERS = ("psgld", "cyclical-sgld", "l2e-one-pass", "kinetic_l2e", "meta_sgmcmc-differences")
THAT_DO_MOST = [name for name in SAMPLERS if name not in OTHERS]
SLOW_TO_COMPILE = ("kinetic_l2e-exact", "precond_l2e", "meta_sgmcmc", "nuts")
QUICK_FIRST = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW_TO_COMPILE else name for name in THAT_DO_MOST]


def make_posterior():
    """A small network on any pytree: nested containers, a scalar, an array of rank 3, an empty one."""

    def log_likelihood(params, batch):
        x, y = batch
        hidden = jnp.tanh(x @ params["in"][0] + params["in"][1][None, :])
        mean = hidden @ params["out"]["w"].reshape(-1) + params["out"]["b"]
        return -0.5 * (y - mean) ** 2

    return roamax.Posterior(log_likelihood, roamax.priors.gaussian(variance=1.0), NUM_DATA)


POSTERIOR = make_posterior()


def make_position(dtype):
    key = jax.random.key(3)
    return {
        "in": (jax.random.normal(key, (3, 4), dtype), jnp.zeros(4, dtype)),
        "out": {"w": jax.random.normal(key, (2, 1, 2), dtype), "b": jnp.asarray(0.5, dtype)},
        "empty": jnp.zeros((0, 5), dtype),
    }


def make_data(dtype, seed=0, length=NUM_DATA):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(length, 3)), dtype), jnp.asarray(rng.normal(size=length), dtype)


def needs_all_data(name):
    return RECORDS[name.split("-")[0]].full_batch


def batch_for(name, dtype=jnp.float32, seed=0):
    return make_data(dtype, seed, NUM_DATA if needs_all_data(name) else BATCH)


@cache
def compiled(name):
    """A sampler, its first state and its compiled step, for all tests of this file."""
    sampler = SAMPLERS[name](POSTERIOR)
    return sampler, jax.jit(sampler.init)(jax.random.key(0), make_position(jnp.float32)), jax.jit(sampler.step)


def signature(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


def leaves_differ(a, b):
    return any(not np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_every_sampler_has_a_row():
    assert {name.split("-")[0] for name in SAMPLERS} == set(RECORDS)


@pytest.fixture(params=SAMPLERS, ids=str)
def name(request):
    return request.param


def test_step_keeps_structure_and_compiles_once_and_has_no_memory_of_its_own(name):
    (sampler, start, step), batch = compiled(name), batch_for(name)
    state, energies = start, []
    for i in range(4):
        state, info = step(jax.random.key(i), state, batch)
        energies.append(float(info.energy))
    assert signature(state) == signature(start)
    assert jax.tree.structure(state) == jax.tree.structure(start)
    assert step._cache_size() == 1
    assert int(state.step) == 4
    assert np.isfinite(energies).all()
    np.testing.assert_allclose(energies[0], POSTERIOR.energy(start.position, batch), rtol=1e-5)

    again = jax.jit(lambda *arguments: sampler.step(*arguments))
    first, second = (f.trace(jax.random.key(0), start, batch).jaxpr for f in (step, again))
    assert len(first.eqns) > 10
    assert programs(first) == programs(second)


def programs(jaxpr):
    """The text of a program, without the addresses of functions in it."""
    return re.sub("0x[0-9a-f]+", "", str(jaxpr))


# Operation by operation, others compile hundreds of programs; that of NUTS, of unknown length, takes minutes.
@pytest.mark.parametrize("name", ["sghmc", "l2e"])
def test_step_equals_itself_unjitted(name):
    (sampler, start, step), batch = compiled(name), batch_for(name)
    with jax.disable_jit():
        plain, _ = sampler.step(jax.random.key(0), start, batch)
    state, _ = step(jax.random.key(0), start, batch)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5), plain, state)


@pytest.mark.usefixtures("float64")
def test_step_keeps_double_precision(name):
    sampler, batch = compiled(name)[0], batch_for(name, jnp.float64)
    start = jax.eval_shape(sampler.init, jax.random.key(0), make_position(jnp.float64))
    state, _ = jax.eval_shape(sampler.step, jax.random.key(1), start, batch)
    assert signature(state) == signature(start)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.position)} == {jnp.dtype("float64")}


def after_three_steps(name, dtype):
    """The state and the energy of a sampler that starts in another precision where it starts in single precision."""
    (sampler, start, _), batch = compiled(name), batch_for(name, dtype)
    form = jax.eval_shape(sampler.init, jax.random.key(0), make_position(dtype))
    state = jax.tree.map(lambda leaf, like: leaf if leaf.dtype == like.dtype else leaf.astype(like.dtype), start, form)
    step = jax.jit(lambda *arguments: sampler.step(*arguments))
    for i in range(3):
        state, info = step(jax.random.key(i), state, batch)
    assert signature(state) == signature(form)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.position)} == {jnp.dtype(dtype)}
    return state, info.energy


@pytest.mark.parametrize("name", QUICK_FIRST)
def test_half_precision_stays_half_and_finite(name):
    if name == "nuts":
        with pytest.raises(InputError, match="`init_position` must be in single or double precision for nuts; got"):
            compiled(name)[0].init(jax.random.key(0), make_position(jnp.float16))
        return
    state, energy = after_three_steps(name, jnp.float16)
    assert np.isfinite(energy)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.position))


@pytest.mark.parametrize("name", QUICK_FIRST)
def test_double_and_single_precision_agree(name, monkeypatch):
    """With the same noise in both."""
    if name in ("hmc", "nuts"):
        pytest.skip("blackjax draws its noise by itself, and a rejection may hang on the last bit")
    (_, single, step), draw = compiled(name), noise.normal
    for i in range(3):
        single, _ = step(jax.random.key(i), single, batch_for(name))
    monkeypatch.setattr(noise, "normal", lambda key, shape, dtype: draw(key, shape, jnp.float32).astype(dtype))
    # It is a program that knows what `normal` was before.
    monkeypatch.setattr(noise, "normal_for_many", lambda key, size, dtype: noise.normal(key, (size,), dtype))
    with jax.enable_x64(True):
        double, _ = after_three_steps(name, jnp.float64)
    ends = ([np.ravel(leaf) for leaf in jax.tree.leaves(end.position)] for end in (single, double))
    np.testing.assert_allclose(*map(np.concatenate, ends), rtol=1e-4, atol=1e-4)


def test_keys_and_gradients_matter(name):
    (_, start, step), batch = compiled(name), batch_for(name)

    def after(key, batch, steps=4):
        state = start
        for i in range(steps):
            state, _ = step(jax.random.fold_in(key, i), state, batch)
        return state.position

    same = after(jax.random.key(1), batch)
    assert not leaves_differ(same, after(jax.random.key(1), batch))
    assert leaves_differ(same, after(jax.random.key(2), batch))
    assert leaves_differ(same, after(jax.random.key(1), batch_for(name, seed=1)))


# The others run in such loops in `test_numerics`.
@pytest.mark.parametrize("name", OTHERS)
def test_steps_can_be_traced_for_many_chains_in_a_loop(name):
    (sampler, start, _), batch = compiled(name), batch_for(name)

    def chain(key):
        return jax.lax.scan(lambda state, key: sampler.step(key, state, batch), start, jax.random.split(key, 3))

    state, info = jax.eval_shape(jax.vmap(chain), jax.random.split(jax.random.key(0), 2))
    assert signature(state) == jax.tree.map(lambda leaf: ((2, *leaf.shape), leaf.dtype), start)
    assert info.energy.shape == (2, 3)


# One of each kind: minibatches, sweeps, members. On all data, every sampler runs there in `test_numerics`.
@pytest.mark.parametrize("name", ["sgld", "sms_ubu", "ensemble"])
def test_runs_in_the_runner(name):
    sampler = compiled(name)[0]._replace(collect=None)
    draws = roamax.sample(
        jax.random.key(0), sampler, make_position(jnp.float32), make_data(jnp.float32), batch_size=BATCH,
        num_samples=3, burn_in=2, thinning=2, num_chains=2,
    )  # fmt: skip
    w = draws.positions["out"]["w"]
    assert w.shape == (2, 3, 2, 1, 2)
    assert not np.array_equal(w[0], w[1])
    assert np.isfinite(w).all()


def test_a_sampler_knows_its_name_and_its_posterior(name):
    sampler = compiled(name)[0]
    assert name.startswith(sampler.settings["name"])
    assert sampler.posterior is POSTERIOR
