"""Predictions, metrics, diagnostics and geometry of draws, and all of them for a run on disk."""
