"""The decoder and its positional encodings; needs only torch and knows no files, tasks or runs.

encoding.py      the interface of an encoding; sequences.py is what its hooks receive
decoder.py       the transformer around it, attention.py and cpu_kernels.py its computation
build.py         from a name to a decoder, prepared for its hardware: backend, compiled blocks
contract.py      what every encoding promises, checked by `tape-arith check`; promises.py
                 reports what holds
hardware.py      device, precision and threads
names.py         names on the command line, read without torch; locate.py finds their files,
                 declarations.py reads their options
encodings/       one file per encoding; families/ holds shared bases
extrapolations.py  changes to an encoding at test time
backends.py      other ways to compute attention; kernels/ has ours in Triton
"""
