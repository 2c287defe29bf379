"""The experiments of the paper, one file per table or figure; what they share is in `framework`.

Each file has `METHODS`, the paper's numbers in `PAPER` where it prints any, and `run(lab)`, which returns `Findings`.
"""
