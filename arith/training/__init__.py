"""The training loop.

config        settings that decide a run's numbers, and the learning rate of each step
batches       the problems of each step, in groups that fit
step          one step: gradient, memory, AdamW;  distributed: processes that share it
trainer       the loop: logs, evaluates, stops, resumes;  evaluation: what is measured on the way
"""
