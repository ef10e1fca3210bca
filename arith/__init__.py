"""The benchmark around the decoder: from problems to comparisons.

tasks, data         what a problem is; the stream of problems, datasets, batches
training, scoring   the training loop; exact match, grids and statistics
runs, sweeps        one run's folder; many runs and the engines that run them
compare, figures    grids side by side as data; figures, tables and the report
studies, export, bench, doctor    beyond the grid
files, lock, machine, terminal  documents on disk; one writer a folder; messages and signals
"""
