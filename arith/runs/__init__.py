"""One run on disk: its recipe, its record, where its files are.

config.py preset.py options.py  recipes; presets; options that change numbers by rounding at most
run.py                          a run as it is planned
record.py folder.py metrics.py  run.json and the other documents; where files are; lines of metrics
command_lines.py                the commands that messages advise
"""
