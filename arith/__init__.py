"""The benchmark around the decoder: from problems to comparisons.

commands, api            the command line, and the functions that it and notebooks call
registry                 names of encodings, tasks and engines
tasks, data              what a problem is; generated problems, datasets on disk, batches
grids, runs              grids of exact match and their statistics; one run and its files
compare, figures         comparisons as data and tables; as figures and a page
contracts, decoders      the promises of encodings and tasks; the decoder of a run
training, scoring        from a recipe to weights; from weights to a grid
sweeps                   many runs, and the engines that start them
studies, export, bench   trained runs from inside; for other tools; speed
catalogue, doctor        what `list` shows; this machine
documents, files, lock   documents on disk, written whole; one writer per folder
errors, machine, stopping, terminal, wheel  errors, versions, signals, messages, packaging
"""
