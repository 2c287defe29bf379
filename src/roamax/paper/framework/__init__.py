"""What the experiments share, in the order in which an experiment passes through it.

registry     the experiments by name; runs one
problems     tasks at two scales, with the hyperparameters that were tuned for each
methods      a method of the paper's tables on a problem, at the cost that it allows
search       the search over hyperparameters
chain        a method's draws on a problem with one seed, kept on disk
lab          runs chains for an experiment and calls functions on them
geometry     where draws lie, in numbers and panels
comparison   our numbers and the paper's, and whether its orderings hold
results      an experiment's files, and the page of results
"""
