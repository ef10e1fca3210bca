"""Which runs are compared, and the numbers, words and tables of a comparison.

selection.py run_states.py      the runs of a comparison, and those that it leaves out
columns.py                      what a column of a table shows in each format
row.py board.py leaderboard.py  a leaderboard: its rows and columns; their order and tests
across_tasks.py task_table.py   the same encodings in several tasks, and their mean ranks
sweep_table.py ablations.py     the table of a sweep; an encoding with and without a part
curves.py report.py             curves over training; the content of `report`
captions.py labels.py lengths.py  words: notes and means, names as papers write them, lengths
tables.py terminal.py           Markdown, CSV, LaTeX, JSON; what fits a terminal
"""
