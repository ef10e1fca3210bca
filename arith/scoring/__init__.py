"""From weights to a grid of exact match.

session.py      score the grid of a run, and resume an interrupted scoring
score.py        exact match by one teacher-forced pass
threshold.py    the error of low precision
score_grid.py   fill a grid, in steps that can be saved
greedy.py       greedy decoding, final answers after a scratchpad
answer.py       answers of a run to single problems
"""
