"""One run: its folder, its training, its scoring.

record.py folder.py metrics.py  presets and run.json; where each file is; metrics and trackers
build.py weights.py             from a record to decoder, trainer and weights; checkpoints
train.py init_from.py score.py  train or extend a run, score its grid; each resumes
command_lines.py                every command that is advised
"""
