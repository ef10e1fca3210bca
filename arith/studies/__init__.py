"""Studies of trained runs. Of each: measuring (torch), numbers and tables, figure (neither torch).

inputs                                          runs that may be compared, problems, watched passes
attention, attention_data, attention_figure     where weight lies by distance and on equal places
stability, stability_data, stability_figure     what changes if indices start elsewhere
errors, errors_data, errors_figure              how wrong answers go wrong
ablations_table, ablations_figure               an encoding beside itself without one part
"""
