"""What the site shows that is derived, not written: the front page, formulas, samplers, weights, commands and examples.

A page says where with a line of its own such as `<!-- weights -->`.
"""

import ast
import pydoc
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCSTRING = '"""'


def on_files(files: Any, config: Any) -> Any:
    """The README is the front page, and the notebook a page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "index.md", content=front_page()))
    files.append(File.generated(config, "tutorial.md", content=notebook()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what is derived, then turn formulas to MathML, which browsers show by themselves."""
    for name, make in DERIVED.items():
        markdown = markdown.replace(f"<!-- {name} -->", make() if f"<!-- {name} -->" in markdown else "")
    markdown = re.sub(r"^::: (\S+)(?:\n    options: \{(.*)\})?$", under_public_name, markdown, flags=re.MULTILINE)
    return re.sub(r"^```math\n(.*?)^```$", lambda found: formula(found[1]), markdown, flags=re.DOTALL | re.MULTILINE)


def under_public_name(found: re.Match[str]) -> str:
    """A directive of the reference, with a heading as users import the thing."""
    path, name = found[1], public_name(found[1])
    options = [f"heading: {name}", f"toc_label: {name}", *filter(None, [found[2]])]
    return f"::: {path}\n    options: {{{', '.join(options)}}}"


def public_name(path: str) -> str:
    """The shortest name of a function, class or module that is the same object, such as `roamax.l2e`."""
    import roamax

    last = path.rsplit(".", 1)[1]
    if path.startswith("roamax.torch."):
        return f"roamax.torch.{last}"  # PyTorch need not be installed.
    here = pydoc.locate(path)
    for home in ("roamax", *(f"roamax.{module}" for module in roamax._MODULES)):
        there = pydoc.locate(f"{home}.{last}")
        # The function of a learned sampler is wrapped by one that reads weights.
        if here in (there, getattr(there, "__wrapped__", there)):
            return f"{home}.{last}"
    raise ValueError(f"{path} has no public name")


def front_page() -> str:
    """The README with its links as the site has them; what the site does not hold is named, not linked."""
    text = (ROOT / "README.md").read_text().replace("](docs/", "](").replace("(tutorial.ipynb)", "(tutorial.md)")
    return re.sub(r"\[([^]]+)\]\((?!https?:|#)([A-Z]\w*(?:\.md)?|examples/?)\)", r"`\2`", text)


def notebook() -> str:
    """The notebook with what it shows, and where to get it."""
    from docs import tutorial

    title, rest = tutorial.page(tutorial.read()).split("\n\n", 1)
    return f"{title}\n\n[Download the notebook](tutorial.ipynb).\n\n{rest}"


def formula(latex: str) -> str:
    """LaTeX as a block of MathML."""
    from latex2mathml.converter import convert

    return f'<div class="formula">{convert(latex.strip(), display="block")}</div>'


def weights() -> str:
    """Every set of weights that ships, with its card."""
    from roamax import pretrained

    return "\n".join(f"##{pretrained.cards.page(name, pretrained.load(name).card)}" for name in pretrained.names())


def samplers() -> str:
    """Every sampler in a table, then the reference of each and of the families of the learned ones."""
    from roamax.samplers.registry import RECORDS

    rows = "\n".join(f"| `{record.name}` | {record.label} | {record.summary} |" for record in RECORDS.values())
    functions = (f"::: {r.module}.{name}" for r in RECORDS.values() for name in (r.name, r.family) if name)
    return f"| sampler | in tables | what it is |\n| --- | --- | --- |\n{rows}\n\n" + "\n".join(functions)


def commands() -> str:
    """The help text of every command."""
    from roamax.cli import COMMANDS

    return "\n\n".join(f"## roamax {name}\n\n```text\n{help_text(name)}\n```" for name in COMMANDS)


def help_text(name: str) -> str:
    """What `roamax NAME --help` prints."""
    import contextlib
    import io

    from roamax.cli import parse

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        parse(name, ["--help"])
    return printed.getvalue().strip()


def examples() -> str:
    """Every example: what it says of itself, then its code."""
    return "\n\n".join(_examples())


def _examples() -> Iterator[str]:
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text()
        title, _, rest = (ast.get_docstring(ast.parse(code)) or "").partition("\n")
        fenced = f"```python\n{code.split(DOCSTRING, 2)[2].strip()}\n```"
        folded = f'??? example "examples/{path.name}"\n\n{textwrap.indent(fenced, "    ")}'
        yield f"## {path.stem}\n\n{title}\n\n{rest.strip()}\n\n{folded}"


def scaling() -> str:
    """What a step takes on a mesh of accelerators."""
    from benchmarks.scaling import step_table

    return step_table()


def workers() -> str:
    """The share of time that workers of meta-training compute."""
    from benchmarks.scaling import worker_table

    return worker_table()


def roam_nll() -> str:
    """NLL and CPU time of roam, and of the best tuned methods."""
    from docs.standing import nll_table

    return nll_table()


def roam_equal_time() -> str:
    """NLL of roam and of tuned methods after as many CPU seconds."""
    from docs.standing import equal_time_table

    return equal_time_table()


def roam_barriers() -> str:
    """Barriers between the draws of a chain."""
    from docs.standing import barrier_table

    return barrier_table()


def roam_deviations() -> str:
    """Deviations on known targets."""
    from docs.standing import deviation_table

    return deviation_table()


DERIVED: dict[str, Callable[[], str]] = {
    "roam-nll": roam_nll,
    "roam-equal-time": roam_equal_time,
    "roam-barriers": roam_barriers,
    "roam-deviations": roam_deviations,
    "samplers": samplers,
    "weights": weights,
    "commands": commands,
    "examples": examples,
    "scaling": scaling,
    "workers": workers,
}
