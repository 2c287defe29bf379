"""Benchmarks: ratios measured within one run, never times alone; and growth with size.

timing      contests, in which contestants take turns; marks, and whether they hold
apart       measurements in separate processes
work        networks and turns that contestants share
contests, peers, starts, pairs    the contests: of our own parts, with other libraries, of start-up, of meta-training
zoo         steps of the learned samplers on perceptrons, CNNs and other networks, and first steps
growth      time and memory vs. size, and the limits of the machine
suite       all of it, by name
page        the page and the figure of a run
__main__    `python -m benchmarks`: the suite, and the page and the modules below as subcommands
answers, order, paths    samplers on known answers: error vs. gradients, the order of their bias, the chains of both
conv, conv_ways    the convolution vs. PyTorch and XLA, and the implementations that were tried
estimators  the estimators vs. those of scikit-learn
meta        meta-training vs. a straightforward loop, and its recipe
scaling     a model of the cost of a step on many accelerators
"""
