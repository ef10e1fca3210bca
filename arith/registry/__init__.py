"""The names of encodings, extrapolations, modifiers, tasks and engines, and what they stand for.

names.py         parse a name with its options, and write it
locate.py        the file of a name: built in, of a package, of the user
declarations.py  what a file declares, read without running it
load.py          the classes of a name, for models/
"""
