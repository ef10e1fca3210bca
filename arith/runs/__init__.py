"""One run: its folder, its training, its scoring.

folder.py record.py    where each file of a run is; run.json and its siblings
train.py score.py      train or extend a run, score its grid; each resumes
build.py weights.py checkpoints.py    from a record to decoder, trainer and weights
find.py command_lines.py    find runs and grids; the commands that are advised
lock.py tracking.py presets/    one writer a folder, trackers of metrics, presets
"""
