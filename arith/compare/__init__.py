"""Which runs are compared, and the numbers, words and tables of a comparison.

selection.py groups.py            the runs that a user asks for; which of them may be compared
columns.py costs.py effects.py    what a column of a table shows; columns of costs, of differences
leaderboard.py board.py           a leaderboard: order, sections and tests; its rows and notes
across_tasks.py task_table.py     the same encodings in several tasks, and their mean ranks
sweep_tables.py                   the tables of a sweep: settings; an encoding without a part
curves.py report.py               curves over training; the content of `report`
captions.py labels.py lengths.py  words: notes and means, names as papers write them, lengths
tables.py terminal.py             Markdown, CSV, LaTeX, JSON; what fits a terminal
"""
