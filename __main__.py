"""Run the command line: `python -m tape_arith`."""

from tape_arith.cli import main

main()
