"""Grids that may stand side by side, as data without figures. Never imports torch.

panels.py       the grids of a comparison, the runs left out, the commands that make missing ones
run_files.py    what lies beside these grids
leaderboard.py  rank encodings and test their differences
curves.py report.py catalogue.py    the content of `curves`, `report` and `list`
order.py        order and sections of encodings; a grid in a line, the path of a figure
"""
