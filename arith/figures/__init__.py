"""Draws what `compare` computes; reads no run.

style.py text.py              the page, colours, saving; fonts, and texts in their room
heatmap.py lines.py           grids of two axes, and the difference of two; grids of one axis
leaderboard.py ablations.py   a row an encoding, a point a seed
across_tasks.py curves.py     encodings by tasks; curves over training
report/                       everything on one HTML page
"""
