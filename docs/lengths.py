"""The picture of NLL against gradients and CPU seconds, from the kept results of `roamax experiment transfer`.

python -m docs.lengths
"""

from docs import standing

from roamax.paper.transfer import by_task, curves

OUT = standing.ROOT / "docs" / "images" / "lengths.png"


def main():
    lengths = {task: group for task, group in by_task(standing.problems()).items() if len(group) > 1}
    OUT.parent.mkdir(exist_ok=True)
    curves(lengths, standing.kept("nll")).savefig(OUT, dpi=120, facecolor="white")


if __name__ == "__main__":
    main()
