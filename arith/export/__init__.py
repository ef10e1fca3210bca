"""Exports for other tools.

export_run    a run for transformers with its model card, or its problems for lm-eval
source_files  the code of an encoding, rewritten to work in one folder
lm_eval       problems as tasks of lm-evaluation-harness
citations     BibTeX of methods
folder        writes a folder whole or not at all; templates in templates/
"""
