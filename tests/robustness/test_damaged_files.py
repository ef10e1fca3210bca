"""One damaged byte of each kind of file: a command names the file in one line, or the content is
what it was. Other damages of documents are in tests/test_documents.py."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tape_arith.arith.data.dataset import Dataset
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs import weights as checkpoint
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.sweeps.sweep import load_sweep
from tests.helpers.tiny_runs import call

RUN = RunFolder(Path("runs/mini/rope/seed-0"))
REFUSED = object()


def tokens(_: Path) -> bytes:
    problems = Dataset(Path("set")).problems(0, 64)
    return problems.tokens.tobytes() + problems.lengths.tobytes()


def tensors(path: Path) -> str:
    content, facts = checkpoint.load(path, "cpu")
    return str({name: tensor.tolist() for name, tensor in content.items()} | {"": facts})


@dataclass(frozen=True)
class Kind:
    """A kind of file: where one is, what reads it, and whether any damage of it is found."""

    path: Path
    read: Callable[[Path], Any]
    command: tuple[object, ...]
    has_checksum: bool = True


VERIFY = ("generate", "--verify", "set")
SCORE = ("score", RUN.path, "--fresh")
CURVES = ("curves", "--compare", "rope")
SWEEP = Path("mine.toml")
KINDS = {
    "manifest": Kind(Path("set/manifest.json"), tokens, VERIFY),
    "tokens": Kind(Path("set/tokens-00000.npy"), tokens, VERIFY),
    "lengths": Kind(Path("set/lengths-00000.npy"), tokens, VERIFY),
    "record": Kind(RUN.record_file, lambda _: RUN.record(), SCORE),
    "timings": Kind(RUN.timings_file, lambda _: RUN.timings(), SCORE),
    "grid": Kind(RUN.path / "grid.json", lambda path: Grid.load(path).content(), SCORE[:2]),
    "weights": Kind(RUN.final, tensors, SCORE),
    "checkpoint": Kind(RUN.before_cooldown, tensors, ("train", RUN.path, "--steps", 90)),
    "metrics": Kind(RUN.metrics_file, lambda _: RUN.metrics(), CURVES, False),
    "sweep": Kind(SWEEP, lambda path: load_sweep(str(path)), ("sweep", SWEEP), False),
}


def read(kind: Kind) -> Any:
    """Return what the file says, or REFUSED where one line names it. Other errors come through."""
    try:
        return kind.read(kind.path)
    except (Failure, UsageError) as error:
        message = str(error)
        assert kind.path.stem in message or kind.path.parent.name in message, message
        assert "\n" not in message, message
        return REFUSED


@pytest.mark.parametrize("name", KINDS)
def test_a_flipped_bit_is_refused_or_changes_nothing(world: Path, name: str) -> None:
    kind, draw = KINDS[name], Random(name)
    expected, content = read(kind), kind.path.read_bytes()
    assert expected is not REFUSED
    for _ in range(40):
        damaged = bytearray(content)
        position = draw.randrange(len(damaged))
        damaged[position] ^= 1 << draw.randrange(8)
        kind.path.write_bytes(damaged)
        value = read(kind)
        assert value is REFUSED or value == expected or not kind.has_checksum, position


HUGE_HEADER = (2**62).to_bytes(8, "little") + b"{}"
TENSORS_PAST_THE_END = (106).to_bytes(8, "little") + (
    b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'.ljust(106)
)


@pytest.mark.parametrize("name", KINDS)
def test_a_command_names_the_damaged_file(original_world: Path, world: Path, name: str) -> None:
    kind = KINDS[name]
    content = kind.path.read_bytes()
    contents = [b"\xff" * 3000 + b"\n"]
    if kind.path.suffix != ".jsonl":  # the first lines of a file of lines are one too
        contents += [b"", content[: len(content) // 2]]
    if kind.path.suffix == ".safetensors":
        contents += [HUGE_HEADER, TENSORS_PAST_THE_END]
    for damaged in contents:
        kind.path.write_bytes(damaged)
        result = call(*kind.command)
        shutil.rmtree("runs")
        shutil.copytree(original_world / "runs", "runs")
        assert result.code in (1, 2) and "Traceback" not in result.err, result
        last = result.err.splitlines()[-1]
        assert last.startswith("tape-arith: "), result.err
        assert kind.path.name in last or kind.path.parent.name in last, last
