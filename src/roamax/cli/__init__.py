"""The command line. Commands import what they need when they run, so that help is there at once."""

import os
import sys
from collections.abc import Callable, Sequence

from roamax.errors import DivergenceError, FileError, InputError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command in `arguments`, by default those of the process."""
    import tyro

    commands = _commands()
    try:
        tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="roamax",
            description="Sample the posteriors of Bayesian neural networks with learned stochastic-gradient MCMC.",
            args=arguments,
        )
    except (InputError, FileError) as error:
        _fail(str(error), code=2)
    except DivergenceError as error:
        _fail(str(error), code=1)
    except KeyboardInterrupt:
        _fail("interrupted. Run the same command again to go on from the last checkpoint, if it had --out.", code=130)
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`: nothing more to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _commands() -> dict[str, Callable]:
    from roamax.cli.data import fetch, list_data
    from roamax.cli.demo import demo
    from roamax.cli.meta_train import meta_train
    from roamax.cli.sample import sample

    return {
        "demo": demo,
        "sample": sample,
        "meta-train": meta_train,
        "data list": list_data,
        "data fetch": fetch,
    }


def _fail(message: str, code: int) -> None:
    print(f"roamax: {message}", file=sys.stderr)
    sys.exit(code)
