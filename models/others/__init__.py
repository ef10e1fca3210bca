"""Each file is one model that stands in the place of the decoder; README.md says how to add one."""
