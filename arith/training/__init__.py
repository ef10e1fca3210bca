"""The training loop.

config.py schedule.py    settings that decide a run's numbers; warm-up and cool-down
trainer.py step.py       the loop; one step and its gradient
batches.py               the problems of each step, in groups that fit
evaluation.py            what is measured during training
checkpoint.py distributed.py failures.py flops.py    files, processes, errors, FLOPs
"""
