"""Names of encodings, extrapolations, modifiers, tasks and engines, and the files they refer to.

names.py         parse and format a name with its options
locate.py        find the file of a name: built in, in a package, or the user's
declarations.py  parse what a file declares, without running it
load.py          import the classes of a name, for models/
"""
