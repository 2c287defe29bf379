"""Tasks, which bind data, model, prior and batch size into an inference problem; task specs and distributions."""

from roamax.tasks.distributions import TaskDistribution, build, get, names
from roamax.tasks.spec import TaskSpec
from roamax.tasks.task import Task, make_task

__all__ = ["Task", "TaskDistribution", "TaskSpec", "build", "get", "make_task", "names"]
