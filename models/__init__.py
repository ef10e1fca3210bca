"""The decoder and its positional encodings; README.md has a map. Knows no files, tasks or runs."""
