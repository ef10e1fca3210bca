"""`tape-arith list`: show encodings, presets, tasks, runs and sweeps."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.errors import UsageError, unknown

EXAMPLE = "tape-arith list tape"
_SWEEPS = "sweeps"


def _complete_name(incomplete: str) -> list[str]:
    names = [_SWEEPS, *option.complete_from("runs.preset", "presets")("")]
    names += option.complete_encoding("") + option.complete_task("")
    return [name for name in names if name.startswith(incomplete)]


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Show only this, in full: an encoding, a task, a preset, or `sweeps`.",
            autocompletion=_complete_name,
        ),
    ] = None,
    runs: option.Runs = Path("runs"),
    costs: option.Costs = False,
    cite: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Print BibTeX of these encodings, such as tape+yarn,abacus+fire, or of all.",
            autocompletion=option.complete_encoding,
        ),
    ] = None,
    as_json: option.AsJson = False,
) -> None:
    """Show encodings, presets, tasks and runs, or one in full; --costs at the paper's size."""
    if cite is not None:
        from tape_arith.arith.export.citations import all_names, bibtex
        from tape_arith.arith.registry.names import parse_list

        names = all_names() if cite == "all" else parse_list(cite)
        if not names:
            raise UsageError("--cite is empty: name an encoding, as in --cite tape")
        print(bibtex(names), end="")
    elif name is not None:
        content, text = _describe(name)
        print(json.dumps(content, indent=1) if as_json else text)
    else:
        from tape_arith.arith.catalogue import catalogue, to_text

        content = catalogue(runs, costs=costs)
        print(json.dumps(content, indent=1) if as_json else to_text(content))


def _describe(name: str) -> tuple[dict[str, Any], str]:
    """Return the facts about `name`, for JSON and as text. Raises UsageError if it is unknown."""
    from tape_arith.arith.runs.preset import (
        describe_preset,
        is_preset,
        known_preset,
        load_preset,
        presets,
    )
    from tape_arith.arith.sweeps.sweep import BUNDLED, load_sweep, sweep_names

    if name == _SWEEPS:
        sweeps = [load_sweep(name) for name in sweep_names()]
        rows = [
            (s.name, ",".join(s.presets), len(s.requests(Path("runs"))), s.summary) for s in sweeps
        ]
        lines = []
        for name, chosen, runs, text in rows:
            several = chosen.count(",") + 1
            chosen = chosen if several == 1 else f"{several} presets"
            lines.append(f"{name:<16}{chosen:<12}{runs:>4} runs  {text}")
        lines.append(f"Files: {BUNDLED}")
        keys = ("name", "preset", "runs", "summary")
        return {_SWEEPS: [dict(zip(keys, row, strict=True)) for row in rows]}, "\n".join(lines)
    if is_preset(name):
        name = known_preset(name) or name
        summary, config = describe_preset(name), load_preset(name).as_dict()
        lines = [summary, *(f"  {key:<18}{value}" for key, value in config.items())]
        return {"preset": name, "summary": summary, "config": config}, "\n".join(lines)
    from tape_arith.arith.catalogue import part_facts, part_text
    from tape_arith.arith.registry.locate import KINDS, is_encoding, known_names, normalized
    from tape_arith.arith.registry.names import parse

    encodings = known_names("encoding")
    changes = {known: kind for kind in KINDS[1:] for known in known_names(kind)}
    if name in changes:
        parts = [(changes[name], name)]
    elif normalized(name.partition(":")[0]) in known_names("task"):
        parts = [("task", name)]
    elif not {"+", ":", "@"} & set(name) and not is_encoding(name):
        every = [_SWEEPS, *presets(), *encodings, *changes, *known_names("task")]
        raise unknown("name", name, every)
    else:
        parsed = parse(name)
        parts = [("encoding", part.name) for part in parsed.encoding.parts]
        parts += [("extrapolation", parsed.extrapolation.name)] if parsed.extrapolation else []
    facts = [part_facts(kind, name) for kind, name in parts]
    return {"parts": facts}, "\n\n".join(map(part_text, facts))
