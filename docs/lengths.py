"""The picture of NLL against gradients and CPU seconds, from the kept results of `roamax experiment transfer`.

python docs/lengths.py
"""

import json
from pathlib import Path

from roamax.paper.framework.comparison import Comparison
from roamax.paper.framework.problems import CPU
from roamax.paper.transfer import by_task, curves

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "images" / "lengths.png"


def main():
    rows, problems = {}, []
    for path in sorted(ROOT.glob("results/transfer*/results.json")):
        results = json.loads(path.read_text())
        rows |= Comparison.from_json(results["tables"]["nll"]).rows
        options = results["options"]
        for name in options["problems"]:
            problems += [CPU[name].lasting(steps) for steps in options["steps"] or [CPU[name].steps]]
    lengths = {task: group for task, group in by_task(problems).items() if len(group) > 1}
    OUT.parent.mkdir(exist_ok=True)
    curves(lengths, rows).savefig(OUT, dpi=120, facecolor="white")


if __name__ == "__main__":
    main()
