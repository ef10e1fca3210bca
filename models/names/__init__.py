"""Names of encodings on the command line and in JSON; nothing here imports torch.

parse.py   text to a parsed name and back
locate.py  the file that a name stands for (ours, an installed package's, the user's) and what it
           declares: summary, kind, paper, options
"""
