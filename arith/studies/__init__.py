"""Studies of trained runs: one frame of numbers each, its tables and figures.

inputs       comparable runs, their problems, forwards that record attention (torch)
study        the frame of a study with the facts of its runs and problems; CSV, JSON
attention    weight by distance and on digits of equal places (torch); attention_report draws
errors       kinds and places of wrong answers (torch); errors_report draws
stability    change of attention when indices are shifted (torch); stability_report draws
ablations    an encoding beside itself without one part
"""
