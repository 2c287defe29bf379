"""The public surface: what `roamax` offers, and how little it takes to import it."""

import ast
import subprocess
import sys
from pathlib import Path

import roamax
from roamax.samplers import registry

NAMES = """
BayesianClassifier BayesianRegressor
Draws Info LearnedSampler Posterior Sampler categorical cyclical data diagnostics ensemble errors from_learning_rate
gaussian hmc kinetic_l2e kinetic_l2e_family l2e l2e_family landscape likelihoods meta meta_sgmcmc meta_sgmcmc_family
metrics models nuts precond_l2e precond_l2e_family predict predict_draws pretrained priors psgld roam roam_family
sample schedules sghmc sgld tasks
"""


def test_the_public_names_are_these():
    # A new sampler is public by its record; none may go.
    known = {*NAMES.split(), *registry.names(), *registry.families()}
    assert sorted(roamax.__all__) == sorted(known)
    assert set(dir(roamax)) - {"__version__"} == known
    for name in roamax.__all__:
        assert getattr(roamax, name) is not None


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_importing_is_light():
    assert run("import roamax, sys; print('jax' in sys.modules)") == ["False"]
    heavy = "flax optax blackjax matplotlib sklearn scipy.stats skimage arviz ray torch requests rich tyro orbax"
    loaded = run(f"""
import roamax, sys
roamax.sample, roamax.predict, roamax.sghmc, roamax.l2e, roamax.Posterior, roamax.priors
print(*[name for name in "{heavy}".split() if name in sys.modules])
""")
    assert loaded == []


def test_help_does_not_wait_for_jax():
    code = """
import contextlib, io, sys
from roamax.cli import COMMANDS, main
for name in ("", *COMMANDS):
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main([*name.split(), "--help"])
    print(name if 'jax' in sys.modules else "", end="")
"""
    assert run(code) == []


def test_nothing_unpickles_or_evaluates():
    source = Path(roamax.__file__).parent
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            unsafe = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
            assert not unsafe & {name.split(".")[0] for name in imported}, path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("eval", "exec", "compile", "__import__", "torch.load"), f"{called} in {path}"
                options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert options.get("allow_pickle", "False") == "False", path
                if called in ("np.load", "numpy.load", "np.lib.format.read_array"):
                    assert "allow_pickle" in options, f"{called} in {path}"


def test_type_checkers_see_every_sampler():
    tree = ast.parse(Path(registry.__file__).read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in ast.walk(guarded) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen - {None} == {*registry.names(), *registry.families()}


def test_a_run_needs_nothing_that_only_linux_has(tmp_path):
    code = f"""
import os, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for owner, name in ((os, "sched_getaffinity"), (os, "sched_setaffinity"), (signal, "pthread_sigmask")):
    if hasattr(owner, name):
        delattr(owner, name)
import warnings
warnings.simplefilter("ignore")  # filelock's, about a system without locks
import jax, jax.numpy as jnp, roamax, roamax.cli, roamax.parallel.workers, roamax.report.page
posterior = roamax.Posterior(lambda theta, batch: -0.5 * (batch - theta) ** 2, lambda theta: -0.5 * theta**2, 8)
sampler, data = roamax.sgld(posterior, step_size=0.01), jnp.ones(8)
draws = roamax.sample(
    jax.random.key(0), sampler, jnp.zeros(()), data, batch_size=4, num_samples=3, out=r"{tmp_path / "run"}"
)
print(draws.positions.shape)
"""
    assert run(code) == ["(1,", "3)"]
