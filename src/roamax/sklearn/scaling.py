"""Standardised inputs and targets, of any number of axes."""

from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.preprocessing import StandardScaler


class Scaling(NamedTuple):
    """A mean and a standard deviation for each feature or target."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, standardize: bool = True) -> Self:
        """Return the moments of `values` over rows; a constant keeps its scale."""
        shape = values.shape[1:]
        if not standardize:
            return cls(np.zeros(shape), np.ones(shape))
        fitted: Any = StandardScaler().fit(values.reshape(len(values), -1))
        return cls(fitted.mean_.reshape(shape), fitted.scale_.reshape(shape))

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Standardise values, in single precision."""
        return ((values - self.mean) / self.scale).astype(np.float32)

    def back(self, values: np.ndarray) -> np.ndarray:
        """Bring standardised values back to their own units."""
        return values.astype(np.float64) * self.scale + self.mean
