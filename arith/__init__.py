"""The benchmark around the decoder: from problems to comparisons.

tasks, data         what a problem is; generated problems, datasets on disk, batches
training, scoring   the training loop; exact match, grids and statistics
runs, sweeps        one run and its folder; many runs, and the engines that start them
compare, figures    grids side by side as data; figures, tables and the report
studies, export, bench, doctor  inside trained runs; for other tools; speed; this machine
files, lock, machine, terminal  documents on disk; one writer per folder; messages, signals
"""
