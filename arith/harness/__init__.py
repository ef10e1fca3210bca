"""Existing language models on the grid, through the models of lm-evaluation-harness.

prompts.py  problems as text, after solved examples
answers.py  the answers of a model, kept in a file as they come
model.py    a model of lm-evaluation-harness, which is asked
score.py    from a model to a grid
"""
