"""Benchmarks: ratios that are measured side by side in one run, never times alone; and how things grow.

timing      contests, in which contestants take turns; marks, and whether they hold
apart       measurements in processes of their own
work        what contestants work on
contests, peers, starts, pairs    the contests: of our own parts, with other libraries, of start-up, of meta-training
growth      time and memory against size, and the machine's own limits
suite       all of it, by name
page        the page and the figure of a run
scaling     a model of what a step takes on many accelerators
"""
