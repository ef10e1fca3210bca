"""Which runs stand side by side, and what is computed of them. Uses torch only for costs.

`figures` has a module of the same name where a topic is drawn: what is made here from the files of
runs (leaderboard.py: the order of encodings and tests) is a `Board`, `TaskTable`, `Curves` or
`Report`, defined there and drawn there (figures/leaderboard.py), by code that reads no run.

panels.py       the grids of a comparison, their runs' files, the commands that make missing ones
leaderboard.py  the order of encodings, tests of their differences
across_tasks.py the same encodings in several tasks, and their mean ranks
curves.py report.py catalogue.py    the content of `curves`, `report` and `list`
"""
