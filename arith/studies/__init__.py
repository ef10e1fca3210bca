"""Studies of trained runs: each is a frame of numbers, with tables and figures.

inputs       comparable runs, their problems, forwards that record attention (torch)
study        the frame of a study with the facts of its runs and problems; CSV, JSON, figures
attention, errors, stability    measure trained runs (torch), write and draw what they measured
attention_figures    draws distances, places and maps of attention
first_errors    the first error of each answer (torch), which `errors` counts
"""
