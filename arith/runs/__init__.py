"""One run: its recipe, its record and its files on disk. Nothing here imports torch.

config.py preset.py options.py  recipes; presets; options that change numbers by rounding at most
request.py                      a run that is asked for
run.py find.py                  a run on disk and how far it is; the runs below a folder
record.py metrics.py            run.json and other documents; lines of metrics
command_lines.py                the commands that messages and jobs name
"""
