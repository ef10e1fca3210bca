"""Attention in Triton. What is said here is known without importing it."""

WIDEST = 128
"""Numbers of a head's query, key or value: what one tile holds."""
