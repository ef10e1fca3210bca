"""Draws what `compare` computes; reads no run.

style.py text.py              the page, colours, saving; fonts, and texts in their room
looks.py                      the colour, dashes and marker of an encoding
heatmap.py layout.py          grids of two axes, and the difference of two; their room and looks
lines.py                      grids as lines over length
leaderboard.py ablations.py   a row an encoding, a point a seed
forest.py                     a row an encoding, its difference from one of them
across_tasks.py curves.py     encodings by tasks; curves over training
report/                       everything on one HTML page
"""
