"""`tape-arith doctor`: what this machine has, and how to fix what it lacks.

doctor   a check and its result, all checks one after the other, Python and packages; no torch
machine  threads, precision, GPU, compiler, attention kernels, disk
"""
