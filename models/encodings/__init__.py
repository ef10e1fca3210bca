"""One file an encoding, named as on the command line; the list is in README.md beside this file."""
