"""Studies of trained runs. Only inputs, attention, stability and errors import torch: they measure.

inputs                                         comparable runs, their problems, watched forwards
attention, attention_data, attention_figure    weight by distance and on digits of equal places
stability, stability_report                    the change of attention when indices are shifted
errors, errors_data, errors_figure             kinds and places of wrong answers
ablations                                      an encoding beside itself without one part
"""
