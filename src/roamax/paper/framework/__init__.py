"""What the experiments share, in the order in which an experiment uses it.

registry     the experiments by name, and the function that runs one
problems     tasks at two scales, with the hyperparameters tuned for each
methods      the methods of the paper's tables on a problem, within its budget
search       the search over hyperparameters
chain        a method's draws on a problem with one seed, kept on disk
lab          runs of chains for an experiment, and functions of them
geometry     the geometry of draws, in numbers and panels
comparison   our numbers and the paper's, and whether its orderings hold
results      an experiment's files, and the page of results
"""
