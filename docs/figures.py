"""The picture of the README: one trained network beside draws from its posterior, on data with a gap.

python docs/figures.py
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import roamax

NOISE = 0.1
OUT = Path(__file__).parent / "images" / "overview.png"


def data(num=60, seed=0):
    """Points of sin(x) with noise, left and right of a gap."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(-5, -1, num // 2), rng.uniform(1, 4, num // 2)]).astype(np.float32)
    return x[:, None], (np.sin(x) + NOISE * rng.standard_normal(num)).astype(np.float32)


def network(params, x):
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    mean = hidden @ params["v"]
    return mean, jnp.full_like(mean, NOISE)


def start(key):
    keys = jax.random.split(key, 3)
    shapes, scales = {"w": (1, 50), "b": (50,), "v": (50,)}, (2.0, 2.0, 0.3)
    return {
        name: scale * jax.random.normal(k, shape)
        for k, scale, (name, shape) in zip(keys, scales, shapes.items(), strict=True)
    }


def main():
    train = data()
    prior = roamax.priors.layerwise_gaussian({"w": 4.0, "b": 4.0, "v": 0.09})
    posterior = roamax.Posterior(roamax.gaussian(network), prior, num_data=len(train[0]))
    training = roamax.ensemble(posterior, member_steps=20_000, init=start, learning_rate=2e-4)
    trained = roamax.sample(jax.random.key(0), training, start, train, num_samples=1)
    sampler = roamax.sghmc(posterior, step_size=0.003, friction=10.0)
    draws = roamax.sample(jax.random.key(1), sampler, start, train, burn_in=100_000, num_samples=50, thinning=4000,
                          num_chains=4)  # fmt: skip
    grid = np.linspace(-6, 5, 300, dtype=np.float32)[:, None]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
    panels = {"one trained network": trained, f"{len(draws)} draws from the posterior": draws}
    for axis, (title, positions) in zip(axes, panels.items(), strict=True):
        mean, std = roamax.predict(network, positions, grid)
        for position in list(positions)[::20]:
            axis.plot(grid[:, 0], network(position, grid)[0], color="tab:blue", alpha=0.25, linewidth=0.8)
        axis.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, color="tab:blue", alpha=0.18, linewidth=0)
        axis.plot(grid[:, 0], mean, color="tab:blue", linewidth=1.8)
        axis.plot(train[0][:, 0], train[1], ".", color="black", markersize=4)
        axis.set(title=title, ylim=(-2.6, 2.6), xlabel="x")
    axes[0].set_ylabel("y")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    OUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUT, dpi=120)


if __name__ == "__main__":
    main()
