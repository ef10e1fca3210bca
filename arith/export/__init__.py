"""Exports for other tools.

export_run    a run for transformers with its model card
source_files  the code of an encoding, rewritten to work in one folder
citations     BibTeX of methods
folder        writes a folder whole or not at all; templates in templates/
"""
