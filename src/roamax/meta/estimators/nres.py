"""Noise-reuse evolution strategies (Li et al., 2023): one perturbation per unroll, kept over its truncations.

The sum xi is that one perturbation, and the variance is lower than with new ones for each.
"""

from roamax.meta.estimators.es import EvolutionStrategies

ESTIMATOR = EvolutionStrategies()
