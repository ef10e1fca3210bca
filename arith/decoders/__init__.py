"""Build the decoder of a run, load its weights, and count its cost.

build.py        a decoder from a recipe and a name; errors of users' encodings
weights.py      weights on disk, loaded into the decoder of a run
cost.py         parameters and FLOPs; the preset that suits this machine
environment.py  versions and machine
failures.py     errors: out of memory, not compilable
"""
