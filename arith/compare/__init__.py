"""Grids that may be compared, as data without figures. Uses torch only for costs.

panels.py       the grids of a comparison, their runs' files, the commands that make missing ones
leaderboard.py  the order of encodings, tests of their differences
across_tasks.py the same encodings in several tasks, and their mean ranks
curves.py report.py catalogue.py    the content of `curves`, `report` and `list`
"""
