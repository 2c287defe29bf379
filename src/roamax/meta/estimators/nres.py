"""Noise-reuse evolution strategies (Li et al., 2023): one perturbation per unroll, kept over its truncations.

The sum xi is that one perturbation, and the variance is smaller than with fresh ones.
"""

from roamax.meta.estimators.es import EvolutionStrategies

ESTIMATOR = EvolutionStrategies()
