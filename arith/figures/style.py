"""The letters and marks that all figures share."""

LETTERS = 7.0
"""Size of a figure's small letters, in points."""
MARKERS = "osD^vPX*"
"""One mark a series, so that series differ in more than colour."""
