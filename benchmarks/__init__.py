"""Benchmarks: ratios that are measured side by side in one run, never times alone; and how things grow.

timing      contests, in which contestants take turns; marks, and whether they hold
apart       measurements in processes of their own
work        networks and turns that contestants share
contests, peers, starts, pairs    the contests: of our own parts, with other libraries, of start-up, of meta-training
growth      time and memory against size, and the machine's own limits
suite       all of it, by name
page        the page and the figure of a run
__main__    `python -m benchmarks`: the suite, the page, and by a word what follows
conv, conv_ways    the convolution vs. PyTorch and XLA, and the ways that were tried
estimators  the estimators vs. scikit-learn's own
meta        meta-training vs. a straightforward loop, and its recipe
scaling     a model of what a step takes on many accelerators
"""
