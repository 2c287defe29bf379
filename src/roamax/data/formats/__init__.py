"""Readers of the formats that the data sets are published in, one module per format.

Each takes the paths of the published files, in the order of the registry, and returns arrays by the names `x_train`,
`y_train`, `x_test`, `y_test` (and `x_valid`, `y_valid` where the publishers have such a split). None of them uses
pickle. They raise whatever the decoders beneath them raise: `archives.reading` makes one line of it.
"""
