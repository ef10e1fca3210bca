"""Which runs stand side by side, and what is computed of them, as numbers, words and tables.

panels.py                       the grids of a comparison, and those that it leaves out
rows.py leaderboard.py board.py an encoding as numbers; their order and tests; sections and columns
across_tasks.py task_table.py   the same encodings in several tasks, and their mean ranks
ablations.py curves.py          an encoding without one part; curves over training
report.py catalogue.py          the content of `report` and of `list`
captions.py labels.py lengths.py  words: notes and means, names as papers write them, lengths
tables.py terminal.py           Markdown, CSV, LaTeX, JSON; what fits a terminal
"""
