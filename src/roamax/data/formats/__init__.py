"""Readers of the formats in which the data sets are published, one module per format.

Each takes the paths of the published files, in the order of the registry, and returns arrays named `x_train`,
`y_train`, `x_test`, `y_test` (and `x_valid`, `y_valid` if such a split is published). None of them uses pickle. Errors
of the decoders propagate; `archives.reading` turns them into one line.
"""
