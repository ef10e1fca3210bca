"""Grids of exact match, and their statistics.

evaluation_set.py  which problems are scored, as options and in words
facts.py           budget and evaluation set, as grids record them
axes.py            the axes of a grid, and the regions of its cells
grid.py            counts of each cell, their means over regions
grid_document.py   the keys of a grid's file, and what must hold between them
comparable.py      which grids may share a figure
statistics.py      intervals and tests of means and of counts
panel.py           the grids of one encoding, one for each seed
"""
