"""Changes at test time, unseen in training: `rope+yarn`, `rand-rope+even`, `tape+logn`.

locate.py finds the classes of these modules by their `name`.
"""
