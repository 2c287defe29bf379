"""Standardisation of inputs and targets with any number of axes."""

from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.preprocessing import StandardScaler


class Scaling(NamedTuple):
    """The mean and standard deviation of each feature or target."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weight: np.ndarray, standardize: bool = True) -> Self:
        """Return the moments of `values` over weighted rows; the scale of a constant is 1."""
        shape = values.shape[1:]
        if not standardize:
            return cls(np.zeros(shape), np.ones(shape))
        fitted: Any = StandardScaler().fit(values.reshape(len(values), -1), sample_weight=weight)
        return cls(fitted.mean_.reshape(shape), fitted.scale_.reshape(shape))

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Standardise values, in single precision; what does not fit becomes infinite."""
        with np.errstate(over="ignore"):
            return ((values - self.mean) / self.scale).astype(np.float32)

    def back(self, values: np.ndarray) -> np.ndarray:
        """Convert standardised values back to the original units."""
        return values.astype(np.float64) * self.scale + self.mean
