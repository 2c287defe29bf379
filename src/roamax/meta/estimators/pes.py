"""Persistent evolution strategies (Vicol et al., 2021): truncated, yet unbiased for the mean loss of the truncations.

The loss of a truncation carries the effect of all perturbations before it, which the sum xi takes into account.
"""

from roamax.meta.estimators.es import EvolutionStrategies

ESTIMATOR = EvolutionStrategies(fresh_noise=True)
