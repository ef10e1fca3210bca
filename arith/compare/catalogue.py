"""What there is: encodings, extrapolations, presets, tasks, runs. No torch, unless costs are asked
for: those are computed from the encodings themselves."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.folder import RunFolder, find_runs, read_grids
from tape_arith.arith.runs.record import describe_preset, load_preset, presets
from tape_arith.arith.tasks.task import task_places, tasks
from tape_arith.arith.terminal import escape_control, say
from tape_arith.models.names.locate import Declaration, declarations, locate
from tape_arith.models.names.parse import parse

SCHEMA = 1
JOINED = ("abacus+fire", "abacus+rope")
"""Combinations that are listed by themselves, those of `sweep mini-all`; many more can be made."""


def everything(root: Path, *, costs: bool = False) -> dict[str, Any]:
    """Plain Python, with stable keys, for `list --json`; with `costs`, each encoding also has its
    parameters and its extra FLOPs a token at the paper's size."""
    encodings = [encoding(entry) for entry in declarations("encoding")]
    joined = [combination(name) for name in JOINED]
    if costs:
        from tape_arith.arith.runs.build import cost

        for entry in (*encodings, *joined):
            if not entry["problem"]:
                try:
                    entry |= asdict(cost(parse(entry["name"])))
                except (UsageError, Failure) as error:  # a package's: the others have theirs
                    say(f"note: {error}")
    return {
        "schema": SCHEMA,
        "encodings": encodings,
        "combinations": joined,
        "extrapolations": [encoding(entry) for entry in declarations("extrapolation")],
        "presets": [
            {"name": name, "summary": describe_preset(name), "config": load_preset(name).as_dict()}
            for name in presets()
        ],
        "tasks": tasks(),
        "task_packages": {p.name: p.package for p in task_places() if p.package},
        "runs": [run(folder) for folder in find_runs(root)],
    }


def encoding(entry: Declaration) -> dict[str, Any]:
    """What the list says of an encoding or an extrapolation."""
    return {
        "name": entry.name,
        "kind": entry.kind,
        "summary": entry.summary,
        "paper": entry.paper,
        "options": {
            name: {"type": option.annotation, "default": option.default}
            for name, option in entry.options.items()
        },
        "package": entry.package,
        "problem": entry.problem,
    }


def combination(name: str) -> dict[str, Any]:
    """The same of encodings joined with a plus: what its parts say, or what is wrong with them."""
    parts, problem = [], ""
    try:
        named = parse(name).encoding.parts
        parts = [locate("encoding", part.name).declaration() for part in named]
    except UsageError as error:  # a package has one of the names too
        problem = str(error)
    return {
        "name": name,
        "kind": " + ".join(part.kind for part in parts),
        "summary": f"Both at once: {' and '.join(part.name for part in parts)}.",
        "paper": "; ".join(part.paper for part in parts),
        "options": {},
        "package": "",
        "problem": problem,
    }


def run(folder: RunFolder) -> dict[str, Any]:
    """A run that cannot be read is listed with what is wrong, so that it does not hide others."""
    try:
        record, metrics = folder.record(), folder.metrics()
    except Failure as error:
        return {"path": str(folder.path), "state": f"unreadable: {error}"}
    step = metrics[-1]["step"] if metrics else 0
    state = "trained" if folder.finished() else f"step {step} of {record.config.steps}"
    return {
        "path": str(folder.path),
        "preset": record.preset,
        "encoding": record.encoding,
        "seed": record.seed,
        "state": state,
        "grids": list(read_grids(folder)),
    }


def as_text(content: dict[str, Any]) -> str:
    """What `everything` found, for people."""
    lines = ["ENCODINGS (tape-arith train --pe NAME[:option=value])"]
    for kind in sorted({entry["kind"] for entry in content["encodings"]}, key=_place):
        lines += [f" {kind or 'of no stated kind'}"]
        lines += [_line(entry) for entry in content["encodings"] if entry["kind"] == kind]
    lines += ["", "JOINED (what is added to the embeddings + what attention does)"]
    lines += [_line(entry) for entry in content["combinations"]]
    lines += ["", "AT TEST TIME (NAME+...)"]
    lines += [_line(entry) for entry in content["extrapolations"]]
    lines += ["", "PRESETS (--preset)"]
    lines += [f"  {preset['name']:<12} {preset['summary']}" for preset in content["presets"]]
    lines += ["", "TASKS (--task)"]
    packages = content["task_packages"]
    lines += [f"  {task}{_from(packages.get(task))}" for task in content["tasks"]]
    lines += ["", "RUNS"]
    for entry in content["runs"]:
        grids = ", ".join(entry.get("grids", [])) or "not scored"
        lines.append(f"  {entry['path']}: {entry['state']}; {grids}")
    return escape_control("\n".join(lines if content["runs"] else [*lines, "  none yet"]))


def _place(kind: str) -> tuple[bool, bool, bool, str]:
    """What has none comes first; last, apart, what knows where digits stand, and what does not say
    of which kind it is."""
    return kind != "none", not kind, kind == "task-structured", kind


def _from(package: str | None) -> str:
    return f" (package {package})" if package else ""


def _line(entry: dict[str, Any]) -> str:
    options = ", ".join(f"{k}={_default(v['default'])}" for k, v in entry["options"].items())
    paper = f"{entry['paper']}." if entry["paper"] else ""
    said = entry["problem"] or f"{entry['summary']} {paper}".strip()
    text = f"  {entry['name']:<15} {said}{_from(entry['package'])}"
    if "parameters" in entry:
        text += f" {entry['parameters']:,} parameters, {entry['flops_a_token']:,.0f} FLOPs a token."
    return f"{text} Options: {options}." if options else text


def _default(value: object) -> str:
    return "auto" if value is None else str(value)
