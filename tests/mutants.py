"""Deliberate breakages, each with the tests that must see it. `make mutants` applies one after the other.

    python tests/mutants.py              # all of them, some ten minutes on two cores
    python tests/mutants.py momentum     # those whose names contain a word

A mutant is a text in a file of the package and what stands in its place. It is applied to a copy of the sources, and
the tests that it names are run against the copy: they have to fail.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    """`old` stands exactly once in `file`, a path below src/roamax; `tests` are arguments of pytest."""

    name: str
    file: str
    old: str
    new: str
    tests: str

    def check(self) -> None:
        """Raise unless the text to break is there, once."""
        found = (ROOT / "src/roamax" / self.file).read_text().count(self.old)
        assert found == 1, f"{self.name}: its text stands {found} times in {self.file}"

    def survives(self) -> bool:
        """Apply the mutant to a copy of the sources and tell whether its tests pass all the same."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "src"
            shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
            path = source / "roamax" / self.file
            path.write_text(path.read_text().replace(self.old, self.new))
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *self.tests.split(" ", 2)]
            environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        # Exit code 1 means failed tests; any other is a mutant that cannot be judged, such as a misspelt test.
        assert done.returncode in (0, 1), f"{self.name}: {done.stdout[-400:]}{done.stderr[-400:]}"
        return done.returncode == 0


MUTANTS = (
    # Samplers
    Mutant(
        "sghmc moves by the old momentum",
        "samplers/sghmc.py",
        "(1.0, state.position), (epsilon, momentum)",
        "(1.0, state.position), (epsilon, state.momentum)",
        "tests/test_known_answers.py -k new_momentum",
    ),
    Mutant(
        "sghmc has half the noise",
        "samplers/sghmc.py",
        "jnp.sqrt(2 * friction * epsilon * temperature)",
        "jnp.sqrt(friction * epsilon * temperature)",
        "tests/test_known_answers.py -k stationary_moments",
    ),
    Mutant(
        "sgld has twice the noise",
        "samplers/sgld.py",
        "jnp.sqrt(2 * epsilon * temperature)",
        "jnp.sqrt(4 * epsilon * temperature)",
        "tests/test_known_answers.py -k stationary_moments",
    ),
    Mutant(
        "psgld without Gamma",
        "samplers/psgld.py",
        "if curvature is not None:",
        "if False:",
        "tests/test_known_answers.py -k psgld_needs_gamma",
    ),
    Mutant(
        "cyclical at temperature 1",
        "samplers/cyclical.py",
        "CyclicalSwitch(temperature, ",
        "CyclicalSwitch(1.0, ",
        "tests/test_known_answers.py -k explores_without_noise",
    ),
    Mutant(
        "cyclical's switch off by one",
        "schedules.py",
        "step % self.length < self.exploration_steps",
        "step % self.length <= self.exploration_steps",
        "tests/test_known_answers.py -k explores_without_noise",
    ),
    Mutant(
        "cyclical's draws all over the sampling part",
        "schedules.py",
        "place * self.draws % self.sampling_steps < self.draws",
        "place <= self.sampling_steps",
        "tests/test_sampling.py -k decide_which",
    ),
    Mutant(
        "a registry of fixed names",
        "samplers/registry.py",
        "return list(RECORDS)",
        'return "sgld psgld sghmc cyclical ensemble hmc nuts l2e kinetic_l2e precond_l2e meta_sgmcmc".split()',
        "tests/test_registry.py -k command_line",
    ),
    Mutant(
        "a demo of fixed samplers",
        "cli/demo_methods.py",
        "if record.in_demo]",
        'if record.in_demo and record.name != "walk"]',
        "tests/test_registry.py -k demo",
    ),
    Mutant(
        "cosine that ends in 0",
        "schedules.py",
        "left = self.cycle_length - step % self.cycle_length",
        "left = self.cycle_length - step % self.cycle_length - 1",
        "tests/test_known_answers.py -k long_cycles",
    ),
    Mutant(
        "an optimizer's state from member to member",
        "samplers/ensemble.py",
        "return start(position, state.step)",
        "return state._replace(position=position)",
        "tests/test_known_answers.py -k fresh_optimizer",
    ),
    Mutant(
        "hmc ignores its temperature",
        "samplers/hmc.py",
        "return -posterior.energy(position, batch) / jnp.asarray(temperature, dtype)",
        "return -posterior.energy(position, batch)",
        "tests/test_known_answers.py -k stationary_moments",
    ),
    Mutant(
        "l2e's averages from the gradient before",
        "samplers/learned/l2e.py",
        "decays * state.averages + (1 - decays) * mean_gradient[None]",
        "decays * state.averages + 0 * mean_gradient[None]",
        "tests/test_learned.py -k l2e_is_its_equations",
    ),
    Mutant(
        "features divided by the sum of squares",
        "samplers/learned/_groups.py",
        "means = totals / jnp.expand_dims(sizes, tuple(range(1, totals.ndim)))",
        "means = totals",
        "tests/test_learned.py -k l2e_is_its_equations",
    ),
    Mutant(
        "the native network rounds to 8 bits",
        "samplers/learned/_native.cc",
        "kLargestWeight = 4095",
        "kLargestWeight = 127",
        "tests/test_learned.py -k native_network",
    ),
    Mutant(
        "native slopes pass through units that are 0",
        "samplers/learned/_native.cc",
        "return Load(units[unit].at + place) > 0 ? sum : Vector{};",
        "return sum;",
        "tests/test_learned.py -k slopes_are_the_derivatives",
    ),
    Mutant(
        "the gradient of a native pool goes to the wrong row",
        "models/_conv.cc",
        "(2 * a + place / 2) * line",
        "(2 * a + place % 2) * line",
        "tests/test_conv.py -k a_pooled_convolution_and_its_gradients",
    ),
    Mutant(
        "half a native library is loaded",
        "host/native.py",
        "files.read_bytes(library, files.read_bytes(seal).decode())",
        "files.read_bytes(library)",
        "tests/test_native.py",
    ),
    Mutant(
        "the recipe without Gamma_theta",
        "samplers/learned/_recipe.py",
        "theta + eps * (q * r + temp * gamma)",
        "theta + eps * (q * r)",
        "tests/test_learned.py -k keeps_a_gaussian",
    ),
    # Posterior
    Mutant(
        "the prior counted once a batch",
        "posterior.py",
        'jnp.sum(log_likelihood) - _shaped(self.log_prior(params), (), "log_prior")',
        '(jnp.sum(log_likelihood) + _shaped(self.log_prior(params), (), "log_prior"))',
        "tests/test_posterior.py",
    ),
    Mutant(
        "labels that wrap",
        "likelihoods.py",
        'mode="fill"',
        'mode="wrap"',
        "tests/test_sampling.py -k outside_the_classes",
    ),
    Mutant(
        "labels of 64 bits that wrap",
        "numerics/trees.py",
        'check(bool(fits), argument, f"hold',
        'check(True, argument, f"hold',
        "tests/test_bad_input.py -k 64_bits",
    ),
    # Sampling and runs
    Mutant(
        "no checkpoint at the end",
        "sampling/runner.py",
        "(is_due or not pending)",
        "is_due",
        "tests/test_resume.py -k one_checkpoint",
    ),
    Mutant(
        "old checkpoints kept",
        "runs/checkpoint.py",
        "if old.name != name:",
        "if False:",
        "tests/test_resume.py -k one_checkpoint",
    ),
    Mutant("no fsync", "host/files.py", "os.fsync(file.fileno())", "pass", "tests/test_resume.py -k reached_the_disk"),
    Mutant(
        "checksums not compared",
        "host/files.py",
        "if sha256 is not None and checksum(content) != sha256:",
        "if False:",
        "tests/test_resume.py -k damage",
    ),
    Mutant(
        "seals not compared",
        "host/files.py",
        "(seal is not None and seal != _seal(value))",
        "False",
        "tests/test_resume.py -k damage",
    ),
    Mutant(
        "one key for all chains",
        "sampling/chains.py",
        "jax.random.fold_in(key, chain))(jnp.arange(num_chains))",
        "jax.random.fold_in(key, 0 * chain))(jnp.arange(num_chains))",
        "tests/test_sampling.py -k number_of_chains",
    ),
    Mutant(
        "an unrolled chain begins at step 0 again",
        "sampling/loop.py",
        "jnp.asarray(first, jnp.int32) + jnp",
        "0 * jnp.asarray(first, jnp.int32) + jnp",
        "tests/test_landscape.py -k step_norms",
    ),
    Mutant(
        "divergence goes unseen",
        "sampling/chains.py",
        "if not bad.any():",
        "if True:",
        "tests/test_sampling.py -k diverging",
    ),
    # Evaluation
    Mutant(
        "ECE with ten bins",
        "evaluation/metrics.py",
        "def ece(predictions: ArrayLike, labels: ArrayLike, bins: int = 15)",
        "def ece(predictions: ArrayLike, labels: ArrayLike, bins: int = 10)",
        "tests/test_metrics.py -k calibration_error",
    ),
    Mutant(
        "total variation twice as large",
        "evaluation/metrics.py",
        "0.5 * jnp.mean(jnp.sum(jnp.abs(jnp.exp(log_p) - jnp.exp(log_q)), axis=-1))",
        "jnp.mean(jnp.sum(jnp.abs(jnp.exp(log_p) - jnp.exp(log_q)), axis=-1))",
        "tests/test_metrics.py -k total_variation",
    ),
    Mutant(
        "the paper's total variation not divided by the classes",
        "paper/hmc_fidelity.py",
        "metrics.total_variation(chain.average, reference) / reference.shape[1]",
        "metrics.total_variation(chain.average, reference)",
        "tests/test_experiments.py -k mean_over_classes",
    ),
    Mutant(
        "hyperparameters tuned on test data",
        "paper/framework/chain.py",
        "x, y = self.task.valid",
        "x, y = self.task.test",
        "tests/test_experiments.py -k never_sees",
    ),
    Mutant(
        "the most confident inputs are rejected",
        "evaluation/metrics.py",
        "order = np.argsort(-np.max(np.asarray(log_probs), axis=-1)",
        "order = np.argsort(np.max(np.asarray(log_probs), axis=-1)",
        "tests/test_metrics.py -k rejecting",
    ),
    Mutant(
        "more draws help when they made it worse",
        "report/conclusions.py",
        "if before - now > little:",
        "if now - before > little:",
        "tests/test_report.py -k conclusions",
    ),
    Mutant(
        "the paper's leader is compared with the worst other method",
        "paper/framework/comparison.py",
        "rival = max(order[1:]",
        "rival = min(order[1:]",
        "tests/test_experiments.py -k summary",
    ),
    Mutant(
        "weights that act as an optimiser do not warn",
        "pretrained/cards.py",
        "if far and not keeps_spread(card):",
        "if far and keeps_spread(card):",
        "tests/test_learned.py -k far_from_their_card",
    ),
    # Meta-training
    Mutant(
        "clipping after Adam",
        "meta/outer.py",
        "optax.chain(optax.clip_by_global_norm(config.clip_norm), adam)",
        "optax.chain(adam, optax.clip_by_global_norm(config.clip_norm))",
        "tests/test_meta.py -k outer_optimizer",
    ),
    Mutant(
        "KL not divided by the number of data",
        "meta/objectives.py",
        "jnp.mean(energies + entropy_gradient) / draw.posterior.num_data",
        "jnp.mean(energies + entropy_gradient)",
        "tests/test_meta.py -k kl",
    ),
    Mutant(
        "Adam begins anew at every outer step",
        "meta/trainer.py",
        "if state.step == begin:",
        "if True:",
        "tests/test_meta.py -k knows_all_steps_of_its_stage",
    ),
    Mutant(
        "persistent noise that is the same in every truncation",
        "meta/estimators/pes.py",
        "EvolutionStrategies(fresh_noise=True)",
        "EvolutionStrategies()",
        "tests/test_meta.py -k fresh_perturbation",
    ),
    Mutant(
        "a diverged unroll goes unseen",
        "meta/outer.py",
        "if math.isfinite(result.loss) else ceiling",
        "if math.isfinite(result.loss) else 0.0",
        "tests/test_meta.py -k diverged",
    ),
    Mutant(
        "a loss beyond the ceiling counts in full",
        "meta/outer.py",
        "loss=min(result.loss, ceiling) if",
        "loss=result.loss if",
        "tests/test_meta.py -k diverged_unroll",
    ),
    Mutant(
        "the average of losses instead of the loss of the average",
        "meta/objectives.py",
        "jnp.logaddexp(score + jnp.log1p(-weight), average + jnp.log(weight))",
        "score + weight * (average - score)",
        "tests/test_meta.py -k objective_is_that_of_all_draws",
    ),
    Mutant(
        "variance as a difference of large numbers",
        "evaluation/predict.py",
        "distance = mean - total.first",
        "distance = mean",
        "tests/test_sampling.py -k predicted_deviation",
    ),
    # The gate
    Mutant(
        "2.0 is a whole number",
        "errors.py",
        "operator.index(cast(SupportsIndex, value))",
        "int(cast(Any, value))",
        "tests/test_bad_input.py -k counts",
    ),
    Mutant(
        "a setting of any name",
        "sampling/named.py",
        "if setting not in known:",
        "if False:",
        "tests/test_fuzz.py -k setting",
    ),
    Mutant(
        "JSON of any shape",
        "errors.py",
        "for place, rule, found in _misfits(value, shape, ()):",
        "for place, rule, found in ():",
        "tests/test_fuzz.py -k json_file",
    ),
    Mutant(
        "a page that runs what is in a record",
        "report/page.py",
        "autoescape=True",
        "autoescape=False",
        "tests/test_fuzz.py -k script",
    ),
    Mutant(
        "Ctrl-C lost in garbage collection",
        "host/interrupts.py",
        "if frame.f_code in callbacks or",
        "if",
        "tests/test_workers.py -k garbage",
    ),
    Mutant(
        "roam draws a new start with twice the deviation",
        "samplers/learned/roam.py",
        "origin[0] + origin[1] * numbers",
        "origin[0] + 2 * origin[1] * numbers",
        "tests/test_roam.py -k starts_anew",
    ),
    Mutant(
        "a chain starts anew a cycle late",
        "samplers/learned/roam.py",
        "(place == 0) & (cycles == 0) & (state.step > 0)",
        "(place == 0) & (cycles == 1) & (state.step > 0)",
        "tests/test_roam.py -k starts_anew",
    ),
    Mutant(
        "an average of roam counts one position too few",
        "samplers/learned/roam.py",
        "1 / (place + 1).astype(mean.dtype)",
        "1 / jnp.maximum(place, 1).astype(mean.dtype)",
        "tests/test_roam.py -k average_takes",
    ),
    Mutant(
        "the time of kept chains is forgotten",
        "paper/framework/records.py",
        "Seconds(n, n)",
        "Seconds(0, n)",
        "tests/test_experiments.py -k needs_no_chains",
    ),
    Mutant(
        "a forked process waits forever",
        "host/machine.py",
        "os.register_at_fork(after_in_child=_note_fork)",
        "pass",
        "tests/test_workers.py -k forked",
    ),
)


def main(words: list[str]) -> int:
    """Try the mutants whose names contain one of `words`, all where there are none."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    for mutant in chosen:
        mutant.check()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        survivors = [
            mutant.name for mutant, lives in zip(chosen, pool.map(Mutant.survives, chosen), strict=True) if lives
        ]
    for name in survivors:
        print(f"survived: {name}")
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} caught")
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
