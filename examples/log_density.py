"""Sample your own log-density, without data or network: the eight schools, by NUTS; and by NumPyro, if it is installed.

The density is that of unconstrained parameters: tau > 0 is exp(log_tau), whose prior has the Jacobian log_tau added.
Schools are in the non-centred form, theta = mu + tau z.

    python examples/log_density.py
"""

import importlib.util
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats

import roamax

EFFECTS = jnp.asarray([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.asarray([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
CHAINS, WARMUP = 4, 500


def log_density(params):
    mu, log_tau, z = params["mu"], params["log_tau"], params["z"]
    tau = jnp.exp(log_tau)
    prior = stats.norm.logpdf(mu, 0.0, 5.0) + stats.cauchy.logpdf(tau, 0.0, 5.0) + log_tau + stats.norm.logpdf(z).sum()
    return prior + stats.norm.logpdf(EFFECTS, mu + tau * z, ERRORS).sum()


def by_roamax(num_samples):
    posterior = roamax.Posterior.from_log_density(log_density)
    start = {"mu": jnp.zeros(()), "log_tau": jnp.zeros(()), "z": jnp.zeros(8)}
    sampler = roamax.nuts(posterior, adaptation_steps=WARMUP, target_acceptance=0.9)
    draws = roamax.sample(jax.random.key(0), sampler, start, num_samples=num_samples, num_chains=CHAINS)
    found = draws.positions
    return {"mu": found["mu"], "tau": np.exp(found["log_tau"]), "z": found["z"]}


def by_numpyro(num_samples):
    import numpyro
    from numpyro import distributions as dist

    def model():
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
        z = numpyro.sample("z", dist.Normal(jnp.zeros(8), 1.0))
        numpyro.sample("effects", dist.Normal(mu + tau * z, ERRORS), obs=EFFECTS)

    kernel = numpyro.infer.NUTS(model, target_accept_prob=0.9)
    options = {"num_warmup": WARMUP, "num_samples": num_samples, "num_chains": CHAINS}
    mcmc = numpyro.infer.MCMC(kernel, **options, chain_method="vectorized", progress_bar=False)
    mcmc.run(jax.random.key(0))
    return jax.tree.map(np.asarray, mcmc.get_samples(group_by_chain=True))


def main(quick=False):
    methods = {"roamax": by_roamax}
    if importlib.util.find_spec("numpyro"):
        methods["numpyro"] = by_numpyro
    for name, run in methods.items():
        begun = time.process_time()
        found = run(500 if quick else 2000)
        seconds = time.process_time() - begun
        sizes, reduction = roamax.diagnostics.ess(found), roamax.diagnostics.rhat(found)
        for variable in ("mu", "tau"):
            draws = found[variable]
            print(
                f"{name}: {variable} {draws.mean():.2f} ± {draws.std():.2f}, ESS {sizes[variable]:.0f}, "
                f"R-hat {reduction[variable]:.3f}"
            )
        print(f"{name}: {seconds:.1f} s of CPU time, with compilation")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
