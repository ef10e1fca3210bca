"""Tasks and their problems; README.md says how to add one.

task.py      the interface of a task
load.py      load a task by name
families/    code that several tasks share: numbers, tokens, formats, base classes
addition.py  a task, like every other file
"""
