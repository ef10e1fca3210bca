"""One run: its folder, its training, its scoring.

record.py folder.py run.py      presets and run.json; where each file is; a run as it is planned
metrics.py                      lines of metrics.jsonl, and trackers
build.py weights.py             decoder, trainer and costs of a run; weights and checkpoints
environment.py compiling.py     versions and machine of a run; whether it is compiled
train.py init_from.py score.py  train or extend a run, begin it from another, score its grid
answer.py command_lines.py      answers to single problems; the commands that messages advise
"""
