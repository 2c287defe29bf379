"""The tutorial, a notebook: run its cells, keep what they show, or turn it into a page.

python docs/tutorial.py     runs docs/tutorial.ipynb and writes what each cell printed and drew into it
"""

import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

TUTORIAL = Path(__file__).parent / "tutorial.ipynb"


def run(notebook: dict[str, Any]) -> None:
    """Run the code of a notebook from top to bottom, and put into it what each cell shows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    known: dict[str, Any] = {}
    for number, cell in enumerate(code_cells(notebook), start=1):
        printed, outputs = io.StringIO(), []
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), known)
        if printed.getvalue():
            outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)})
        for figure in map(plt.figure, plt.get_fignums()):
            picture = io.BytesIO()
            figure.savefig(picture, dpi=80, bbox_inches="tight", metadata={"Software": None})
            png = base64.b64encode(picture.getvalue()).decode()
            outputs.append({"output_type": "display_data", "data": {"image/png": png}, "metadata": {}})
        plt.close("all")
        cell |= {"execution_count": number, "outputs": outputs}


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells with code, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def page(notebook: dict[str, Any]) -> str:
    """Return a notebook with what it shows as a page of Markdown."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell))


def _parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    shown = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            shown.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
        else:
            shown.append(f'<img alt="" src="data:image/png;base64,{output["data"]["image/png"]}">')
    return shown


def read(path: Path = TUTORIAL) -> dict[str, Any]:
    """Read a notebook."""
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    tutorial = read()
    run(tutorial)
    TUTORIAL.write_text(json.dumps(tutorial, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
