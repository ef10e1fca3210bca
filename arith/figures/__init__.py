"""Figures, tables and the report of what `compare` computes. Reads no run, never imports torch.

shared      style.py (the page, letters, colours; saving), labels.py (names of encodings as papers
            write them), lengths.py (words for the axes of a grid), captions.py (notes, means)
figures     heatmap.py (grids of two axes, and the difference of two), lines.py (grids of one axis,
            over length), leaderboard.py, curves.py (over training)
tables      rows.py (encodings as numbers, and their order), board.py (the leaderboard: sections,
            columns, notes), tables.py (Markdown, CSV, LaTeX, JSON), terminal.py (what fits there)
both        across_tasks.py (encodings by tasks), report/ (everything on one HTML page)
"""
