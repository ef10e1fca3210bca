"""One run on disk: its recipe, its record, its files.

config.py preset.py options.py  recipes; presets; options that change numbers by rounding at most
run.py                          a planned run
record.py folder.py metrics.py  run.json and other documents; paths; lines of metrics
command_lines.py                the commands in messages
"""
