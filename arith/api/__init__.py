"""Do in Python what the commands do; return frames, figures and runs.

    import tape_arith

    run = tape_arith.train("rope", preset="mini", steps=60)
    run.score().to_frame()                             # one row per cell
    run.answer("123+45")                               # each digit with its probability
    tape_arith.load_grids("results", preset="mini")    # the cells of every scored run
    tape_arith.heatmap("rope,fire", runs="results", preset="mini")
    tape_arith.leaderboard("results", preset="mini")

run.py          a run: train, score, ask and export it; find runs
runs.py         generate problems; train one encoding or many
models.py       models trained elsewhere, language models too: their problems, their grid
processes.py    how work stops in good order, and which process trains
comparisons.py  compare grids in frames, figures and a page; study trained runs

A finished run is not trained again, and an interrupted run continues. A request that makes no sense
raises UsageError, any other failure raises Failure; the text of both is one line for people.
"""
