"""Grids that may stand side by side, as data without figures. Never imports torch.

panels.py       the grids of a comparison, their runs' files, the commands that make missing ones
leaderboard.py  order encodings, and test their differences
curves.py report.py catalogue.py    the content of `curves`, `report` and `list`
"""
