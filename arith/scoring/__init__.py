"""From weights to a grid of exact match.

session.py  score the grid of a run, and resume an interrupted scoring
score.py    exact match by one teacher-forced pass
greedy.py   greedy decoding, final answers after a scratchpad
answer.py   answers of a run to single problems
"""
