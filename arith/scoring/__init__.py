"""Which answers are exact, and what can be said of a grid.

score.py        exact match by one teacher-forced pass; the only module that imports torch
grid.py grid_file.py evaluation_set.py    counts by operand lengths, their file, their problems
regions.py      in distribution, out of distribution and the rest, as masks
statistics.py comparisons.py    intervals over seeds; tests between encodings
limits.py       how large a grid may be
"""
