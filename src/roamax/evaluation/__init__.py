"""From draws to numbers: predictions, metrics, diagnostics, geometry, and all of them for a run on disk."""
