"""From a recipe to weights.

session.py                       one training, from recipe to weights: read it first
begin.py init_from.py            begin a run, also from the weights of another run; raise its budget
data.py batches.py               the dataset that a run trains on; the problems of each step
step.py trainer.py               a step: gradient, memory, AdamW; all steps, their checks and state
evaluation.py                    what is measured during training
checkpoints.py distributed.py    save and resume; processes that share a step
"""
