"""Attention as figures: maps of one problem, weight by distance, weight on equal places."""
