"""Exports for other tools.

export_run    a run for transformers with its model card, or its problems for lm-eval
hub_folder    code, config and tokenizer for transformers; source_files, the code of an encoding
citations     BibTeX of methods
lm_eval       problems as tasks of lm-evaluation-harness
folder        writes a folder whole or not at all; templates in templates/
"""
