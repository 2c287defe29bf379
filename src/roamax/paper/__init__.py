"""Comparisons of samplers on the same footing: what the commands run."""
