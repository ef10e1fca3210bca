"""Every command line that is advised or run is one that the command line takes."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tape_arith import cli
from tape_arith.arith.data.bucket import CARRY
from tape_arith.arith.grids.evaluation_set import EvaluationSet
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.command_lines import (
    how_to_restore_weights,
    score_command,
    train_command,
    why_no_weights,
)
from tape_arith.arith.runs.options import Compute, TrainOptions
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.request import Request
from tape_arith.arith.runs.run import Run
from tape_arith.arith.sweeps.jobs import plan
from tests.helpers.tiny_runs import done, settings

COMMANDS: dict[str, Any] = dict(cli.all_commands().commands)
HARD = EvaluationSet(CARRY, 9)


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """The parameters of a command line; raises what the command line would say of a wrong one."""
    name, *rest = words
    parameters: dict[str, Any] = COMMANDS[name].make_context(name, list(rest)).params
    return parameters


def advised(line: str) -> dict[str, Any]:
    first, *words = shlex.split(line)
    assert first == "tape-arith"
    return parsed(words)


def jobs_of(name: str) -> Iterator[Sequence[str]]:
    config = replace(load_preset("mini"), learning_rate=5e-4, steps=40)
    run = Request(parse(name), 3, "mini", config, Path("out of the way"))
    compute = Compute("eager", compiled=False, precision="bfloat16")
    options = TrainOptions(compute=compute, curves=False, trackers=("tensorboard",))
    splits = ("evaluation", CARRY)
    for job in plan([run], options, Path("runs"), splits, data=Path("data")):
        yield job.argv


@pytest.mark.parametrize("name", ["tape:width=12+yarn", "abacus+fire:init_l=12"])
def test_those_of_jobs(name: str) -> None:
    kinds = []
    for argv in jobs_of(name):
        parameters = parsed(argv)
        kinds.append(argv[0])
        if argv[0] == "train":
            (pe,) = parameters["pe"]
            assert parse(pe).encoding == parse(name).encoding
            assert (parameters["seed"], parameters["no_curves"]) == (3, True)
            assert parameters["data"] == Path("data/addition-bucket-8-seed-3")
            assert parameters["runs"] == Path("out of the way")
            assert set(parameters["settings"]) == {"learning_rate=0.0005", "steps=40"}
        if argv[0] == "score":
            assert (parameters["with_"] is not None) == ("yarn" in name)
    assert kinds == ["generate", "train", "score", "score"]


def test_those_that_are_advised(here: Path) -> None:
    root, rope = Path("my runs"), parse("rope+yarn")
    plain = advised(train_command(parse("nope"), "mini", root))
    assert (plain["preset"], plain["runs"]) == ("mini", root)
    begun = advised(train_command(parse("tape@only-positional-from=rope"), "mini", root))
    assert begun["init_from"] == root / "mini/rope/seed-0" and begun["only_positional"]
    assert advised(score_command(root, "mini", rope, HARD))["pe"] == ["rope+yarn"]
    done("train", "--pe", "rope", "--no-score", "--out", root, *settings())
    scored = advised(score_command(root, "mini", rope, HARD))
    assert (scored["split"], scored["max_digits"]) == (CARRY, 9)
    folder = Run(root / "mini/rope/seed-0")
    folder.final.rename(folder.latest)
    assert advised(score_command(root, "mini", rope, HARD))["run"] == folder.path
    assert advised(why_no_weights(folder).split("`")[1])["run"] == folder.path
    assert advised(how_to_restore_weights(folder).split("`")[1])["run"] == folder.path
