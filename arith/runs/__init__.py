"""One run: its folder, its training, its scoring.

preset.py run.py cost.py        presets; a run as it is planned; what it costs
record.py folder.py metrics.py  run.json and the other documents; where files are; lines of metrics
build.py training_data.py       decoder and trainer of a run; the problems that it trains on
weights.py environment.py       weights and checkpoints; versions and machine
compiling.py                    whether a training on a CPU compiles its blocks
train.py init_from.py score.py  train or extend a run, begin it from another, score its grid
answer.py command_lines.py      answers to single problems; the commands that messages advise
"""
