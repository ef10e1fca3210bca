"""Figures, tables and the report of what `compare` computes. Reads no run, never imports torch.

style.py        letters, colours and the page that all figures share; saving of figures
heatmap.py      grids of two axes side by side, and the difference of two
lines.py        grids of one axis, as lines over length
lengths.py      words and marks for the axes of a grid
leaderboard.py curves.py    the ranking and the learning curves as figures
labels.py       names of encodings as papers write them
across_tasks.py encodings by tasks, as tables and a heatmap
rows.py         encodings as rows of numbers, and their order
board.py        the leaderboard: sections, columns, notes
tables.py       rows and rankings as Markdown, CSV, LaTeX and JSON
terminal.py     tables that fit a terminal
report/         everything on one HTML page
"""
