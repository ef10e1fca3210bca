"""Collect the content of `list`: encodings, presets, tasks, runs. Imports torch only for costs."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from tape_arith.arith.compare.captions import seen_words
from tape_arith.arith.compare.selection import or_default
from tape_arith.arith.data.seen import SOON_MADE, SeenProblems, seen_share
from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.registry.declarations import Declaration, value_text
from tape_arith.arith.registry.locate import (
    KINDS,
    declarations,
    is_encoding,
    known_names,
    locate,
    locations,
    normalized,
    trainable_names,
)
from tape_arith.arith.registry.names import parse, task_location
from tape_arith.arith.runs.command_lines import other_run_roots
from tape_arith.arith.runs.config import Config, setting_meanings
from tape_arith.arith.runs.find import find_runs
from tape_arith.arith.runs.preset import (
    describe_preset,
    is_preset,
    known_preset,
    load_preset,
    presets,
)
from tape_arith.arith.runs.run import Run
from tape_arith.arith.sweeps.sweep import BUNDLED, load_sweep, sweep_names
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.terminal import escape_control, say

_JOINED = ("abacus+fire", "abacus+rope")
"""The joined encodings that are listed, those of `sweep mini-all`; many more are possible."""
_FACTS = ("name", "kind", "summary", "paper", "options", "told_by", "package", "problem")
"""What is listed of a declaration."""


def catalogue(root: Path, *, costs: bool = False) -> dict[str, Any]:
    """Return plain Python, with stable keys, for `list --json`.

    With `costs`, each encoding has its parameters and extra FLOPs per token at the paper's size.
    """
    runs = find_runs(root)
    if not runs and (elsewhere := other_run_roots(root)):
        say(f"note: no run in {root}: {elsewhere}")
    encodings, extrapolations, modifiers, models, tasks = (
        list(map(_entry, declarations(kind)))
        for kind in ("encoding", "extrapolation", "modifier", "model", "task")
    )
    joined = [_entry(_joined(name)) for name in _JOINED]
    for entry in (*encodings, *joined) if costs else ():
        if not entry["problem"]:
            entry |= or_default(partial(_cost, entry["name"]), dict[str, Any]())
    return {
        "schema": 1,
        "encodings": encodings,
        "combinations": joined,
        "extrapolations": extrapolations,
        "modifiers": modifiers,
        "models": models,
        "presets": [
            {"name": name, "summary": describe_preset(name), "config": load_preset(name).as_dict()}
            for name in presets()
        ],
        "tasks": [entry["name"] for entry in tasks],
        "task_entries": tasks,
        "task_packages": {p.name: p.package for p in locations("task") if p.package},
        "runs": list(map(_run, runs)),
    }


def _cost(name: str) -> dict[str, Any]:
    from tape_arith.arith.decoders.cost import cost  # torch, only for costs

    return asdict(cost(parse(name)))


def _entry(declaration: Declaration) -> dict[str, Any]:
    """Describe an encoding, an extrapolation, a modifier or a task."""
    options = {
        name: {"type": option.annotation, "default": option.default, "meaning": option.meaning}
        for name, option in declaration.options.items()
    }
    return {key: getattr(declaration, key) for key in _FACTS} | {"options": options}


def _part_facts(kind: str, name: str) -> dict[str, Any]:
    """Describe an encoding, an extrapolation or a task in full, for `list NAME --json`.

    A task has its axes and its example, with the options of its name.
    """
    location = task_location(name) if kind == "task" else locate(kind, name)
    declaration = location.declaration()
    facts = _entry(declaration) | {"file": str(location), "description": declaration.description}
    if kind == "modifier":
        facts["name"] += "-NAME"
    for option, declared in declaration.options.items():
        facts["options"][option] |= {"choices": list(declared.choices)}
    if kind == "task" and location.is_builtin:  # the code of a user's task is not executed
        task = load_task(name)
        facts |= {"kind": "task", "axes": [axis._asdict() for axis in task.axes]}
        facts |= {"example": task.example, "tokens": task.text(task.example)}
        facts |= {"vocabulary": len(task.vocabulary)}
    return facts


def _part_text(facts: dict[str, Any]) -> str:
    """Format the result of `_part_facts`: the description, then a line for each option."""
    place = facts["file"] if facts["file"] != facts["name"] else "a file"
    known = "; ".join(filter(None, [facts["kind"], place]))
    lines = [f"{facts['name']} ({known}){_package(facts['package'])}"]
    lines += [f"paper: {facts['paper']}"] if facts["paper"] else []
    lines += ["", facts["description"]]
    if option := facts["told_by"]:
        lines += ["", f"Training depends on the longest tested length, unless {option} is given."]
    if "axes" in facts:
        lengths = [
            axis["name"] + (f", a place from 1 to {axis['places']}" if axis["places"] else "")
            for axis in facts["axes"]
        ]
        lines += ["", f"lengths: {'; '.join(lengths)}"]
        lines += [f"example: {facts['example']} is the tokens {facts['tokens']}"]
        lines += [f"vocabulary: {facts['vocabulary']} tokens"]
    lines += ["", f"OPTIONS ({facts['name']}:option=value)"] if facts["options"] else []
    rows = list[tuple[str, str]]()
    for name, option in facts["options"].items():
        kind = ", ".join(option["choices"]) or option["type"].removesuffix(" | None")
        # If the preset sets a default, the meaning says more than "from the preset".
        stated = option["default"] is not None or not option["meaning"]
        default = f"default: {_default(option, 'from the preset')}" if stated else ""
        rows.append((name, "; ".join(filter(None, [kind, default, option["meaning"]]))))
    return escape_control("\n".join([*lines, *_columns(rows)]))


def _joined(name: str) -> Declaration:
    """Declare encodings joined with a plus, from the declarations of the parts."""
    try:
        parts = [part.declaration() for part in parse(name).encoding.locations()]
    except UsageError as error:  # a package also defines one of the names
        return Declaration(name, problem=str(error))
    return Declaration(
        name,
        kind=" + ".join(part.kind for part in parts),
        summary=f"Both at once: {' and '.join(part.name for part in parts)}.",
        paper="; ".join(part.paper for part in parts),
        told_by=" and ".join(filter(None, [part.told_by for part in parts])),
    )


def _run(run: Run) -> dict[str, Any]:
    """Describe a run; if it is unreadable, the error is its state."""
    state = run.state()
    try:
        record, step = run.record(), state.step
    except Failure as error:
        return {"path": str(run.path), "state": f"unreadable: {error}"}
    return {
        "path": str(run.path),
        "preset": record.preset,
        "encoding": record.encoding,
        "seed": record.seed,
        "state": "trained" if state.trained else f"step {step} of {record.config.steps}",
        "grids": list(run.grids()),
    }


def to_text(content: dict[str, Any]) -> str:
    """Format a catalogue for people."""

    def order(kind: str) -> tuple[bool, bool, bool, str]:
        # "none" comes first; task-structured encodings, then those without a kind, come last.
        return kind != "none", not kind, kind == "task-structured", kind

    lines = ["ENCODINGS (tape-arith train --pe NAME[:option=value], list NAME: one in full)"]
    encodings = sorted(content["encodings"], key=lambda entry: order(entry["kind"]))
    shown = zip(encodings, _columns(map(_row, encodings)), strict=True)
    for kind, group in groupby(shown, key=lambda each: each[0]["kind"]):
        lines += [f" {kind or 'of no stated kind'}", *(line for _, line in group)]
    joined, modifiers, extrapolations, models, tasks = (
        map(_row, content[key])
        for key in ("combinations", "modifiers", "extrapolations", "models", "task_entries")
    )
    presets = [(preset["name"], preset["summary"]) for preset in content["presets"]]
    for title, rows in (
        ("JOINED (what is added to the embeddings + what attention does)", joined),
        ("IN TRAINING (MODIFIER-NAME, as in aug-rope)", modifiers),
        ("AT TEST TIME (NAME+...)", extrapolations),
        ("OTHER MODELS (--model NAME or FILE.py:CLASS, wherever an encoding is named)", models),
        ("PRESETS (--preset)", presets),
        ("TASKS (--task NAME[:option=value...], list NAME: one in full)", tasks),
    ):
        lines += ["", title, *_columns(rows)]
    lines += ["", "RUNS"]
    for run in content["runs"]:
        grids = f"; {', '.join(run['grids']) or 'not scored'}" if "grids" in run else ""
        lines.append(f"  {run['path']}: {run['state']}{grids}")
    return escape_control("\n".join(lines if content["runs"] else [*lines, "  none yet"]))


def describe(name: str) -> tuple[dict[str, Any], str]:
    """Return the facts about `name`, for JSON and as text. Raises UsageError if it is unknown."""
    if name == "sweeps":
        facts, rows = [], []
        for sweep in map(load_sweep, sweep_names()):
            name, own, summary = sweep.name, ",".join(sweep.presets), sweep.summary
            runs = len(sweep.requests(Path("runs")))
            facts.append({"name": name, "preset": own, "runs": runs, "summary": summary})
            shown = f"{len(sweep.presets)} presets" if "," in own else own
            rows.append((name, shown, f"{runs:>4} runs", summary))
        return {"sweeps": facts}, "\n".join([*_columns(rows), f"Files: {BUNDLED}"])
    if is_preset(name):
        name = known_preset(name) or name
        summary, config = describe_preset(name), load_preset(name)
        settings, share = config.as_dict(), _seen_share(config)
        about = {"preset": name, "summary": summary, "config": settings, "seen_share": share}
        about["meanings"] = meanings = setting_meanings()
        table = [(key, str(value), meanings[key]) for key, value in settings.items()]
        lines = [summary, *_columns(table)]
        lines += [] if share is None else [f"With seed 0, {seen_words(share)}."]
        return about, "\n".join(lines)
    changes = {known: kind for kind in KINDS[1:] for known in known_names(kind)}
    if name in changes:
        parts = [(changes[name], name)]
    elif normalized(name.partition(":")[0]) in known_names("task"):
        parts = [("task", name)]
    elif not {"+", ":", "@"} & set(name) and not is_encoding(name):
        every = ["sweeps", *presets(), *trainable_names(), *changes, *known_names("task")]
        raise unknown("name", name, every)
    else:
        parsed = parse(name)
        parts = [("encoding", part.name) for part in parsed.encoding.parts]
        parts += [("extrapolation", parsed.extrapolation.name)] if parsed.extrapolation else []
    facts = [_part_facts(kind, name) for kind, name in parts]
    return {"parts": facts}, "\n\n".join(map(_part_text, facts))


def _seen_share(config: Config) -> float | None:
    """Compute which share of the tested problems of trained lengths seed 0 has seen in training.

    None if settings of the task are missing, as in `mini@sort`, or if it would take long.
    """
    try:
        training, tested = config.bucket(0), config.evaluation_bucket()
    except UsageError:
        return None
    count = config.problems_seen()
    if count > SOON_MADE:  # a grid counts it where the run is scored
        return None
    return seen_share(SeenProblems(training, count), tested, config.problems_per_cell)


def _default(option: dict[str, Any], automatic: str) -> str:
    """Return the default of an option as its name has it, or `automatic` for None."""
    return automatic if option["default"] is None else value_text(option["default"])


def _package(name: str | None) -> str:
    return f" (package {name})" if name else ""


def _columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Write each row in a line, in columns that are as wide as their longest entry."""
    rows = [*rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return ["  " + "  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows]


def _row(entry: dict[str, Any]) -> tuple[str, str]:
    """Return the name and the description of an encoding, a modifier, a model or a task."""
    options = ", ".join(f"{k}={_default(o, 'auto')}" for k, o in entry["options"].items())
    paper = f"{entry['paper']}." if entry["paper"] else ""
    prior = "Told the tested length." if entry["told_by"] else ""
    summary = entry["problem"] or " ".join(filter(None, [entry["summary"], paper, prior]))
    text = f"{summary}{_package(entry['package'])}"
    if "parameters" in entry:
        text += f" {entry['parameters']:,} parameters, {entry['flops_a_token']:,.0f} FLOPs a token."
    return entry["name"], f"{text} Options: {options}." if options else text
