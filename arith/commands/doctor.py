"""`tape-arith doctor`: check this machine."""

import json

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.errors import EXIT_FAILED

EXAMPLE = "tape-arith doctor"
SCHEMA = 3


def command(as_json: option.AsJson = False) -> None:
    """Describe this machine, and check precision, compiler and attention; exit 1 if one is broken.

    "slow" works, and "missing" is optional; each comes with a fix.
    """
    from tape_arith.arith.doctor import STATES, describe_machine, examine

    machine = describe_machine()
    if not as_json:
        print(machine, flush=True)
    checks = []
    for check in examine():
        checks.append(check)
        if not as_json:
            print(check, flush=True)
    states = [check.state for check in checks]
    works = "broken" not in states
    if as_json:
        content = {"schema": SCHEMA, "works": works, "machine": machine}
        print(json.dumps(content | {"checks": list(map(vars, checks))}, indent=1))
    else:
        print(", ".join(f"{states.count(state)} {state}" for state in STATES))
    if not works:
        raise typer.Exit(EXIT_FAILED)
