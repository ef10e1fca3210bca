"""Tasks and their problems; README.md says how to add one. Never imports torch.

task.py      the interface of a task
registry.py  tasks by name: of this folder, of packages, FILE.py:CLASS
families/    what several tasks share: numbers, tokens, formats, base classes
addition.py  a task, as is every other file
"""
