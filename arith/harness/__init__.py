"""Existing language models on the grid, through the models of lm-evaluation-harness.

prompts.py  problems as text, after solved examples
model.py    a model of lm-evaluation-harness, which is asked
score.py    from a model to a grid, by answers that a file keeps as they come
"""
