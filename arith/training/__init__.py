"""From a recipe to weights.

session.py                       train a run, extend its budget, continue it after a kill
init_from.py data.py             begin from another run's weights; the dataset that a run trains on
trainer.py step.py batches.py    the loop; one step: gradient, memory, AdamW; problems of a step
evaluation.py                    what is measured on the way
checkpoints.py distributed.py    save and resume; processes that share a step
compiling.py                     whether a training on a CPU compiles its blocks
"""
