"""A damaged file is one line that names it: never a traceback, a hang or another number."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tape_arith.arith.data.dataset import Dataset
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.scoring.grid import Grid
from tape_arith.arith.sweeps.sweep import load_sweep
from tape_arith.arith.training import checkpoint
from tests.helpers.sealing import resealed, without
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
    sealed: bool = True


VERIFY = ("generate", "--verify", "set")
SCORE = ("score", RUN.path, "--fresh")
KINDS = {
    "manifest": Kind(Path("set/manifest.json"), tokens, VERIFY),
    "tokens": Kind(Path("set/tokens-00000.npy"), tokens, VERIFY),
    "lengths": Kind(Path("set/lengths-00000.npy"), tokens, VERIFY),
    "record": Kind(RUN.record_file, lambda _: RUN.record(), SCORE),
    "timings": Kind(RUN.timings_file, lambda _: RUN.timings(), SCORE),
    "grid": Kind(RUN.path / "grid.json", lambda path: Grid.load(path).content(), SCORE[:2]),
    "weights": Kind(RUN.final, tensors, SCORE),
    "state": Kind(RUN.before_cooldown, tensors, ("train", RUN.path, "--steps", 90)),
    "metrics": Kind(
        RUN.metrics_file, lambda _: RUN.metrics(), ("curves", "--compare", "rope"), sealed=False
    ),
    "sweep": Kind(
        Path("mine.toml"), lambda path: load_sweep(str(path)), ("sweep", "mine.toml"), sealed=False
    ),
}
JSON_KINDS = [name for name, kind in KINDS.items() if kind.path.suffix in (".json", ".jsonl")]


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
    for _ in range(60):
        damaged = bytearray(content)
        place = draw.randrange(len(damaged))
        damaged[place] ^= 1 << draw.randrange(8)
        kind.path.write_bytes(damaged)
        value = read(kind)
        assert value is REFUSED or value == expected or not kind.sealed, place


CONTENTS = {
    "nothing": b"",
    "zeros": bytes(3000),
    "a pickle": b"\x80\x04\x95\x19\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93.",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep table": b"a" + b".a" * 3000 + b" = 1",
    "a number past every float": b"[1e400]",
    "a long number": b"9" * 100_000,
    "UTF-16": '{"schema": 1}'.encode("utf-16"),
    "a lone surrogate": b'{"schema": 1, "kind": "\\ud800"}',
    "a list": b"[[]]",
    "a huge header": (2**62).to_bytes(8, "little") + b"{}",
    "tensors past the end": (106).to_bytes(8, "little")
    + b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'.ljust(106),
}


@pytest.mark.parametrize("name", KINDS)
def test_other_contents_are_refused(world: Path, name: str) -> None:
    kind = KINDS[name]
    expected, content = read(kind), kind.path.read_bytes()
    halves = {"a half": content[: len(content) // 2], "more": content + b"\x00{"}
    for damage, other in {**CONTENTS, **halves}.items():
        kind.path.write_bytes(other)
        value = read(kind)
        assert value in (REFUSED, expected) or not kind.sealed, damage


@pytest.mark.parametrize("name", KINDS)
def test_what_is_no_file_is_refused(world: Path, name: str) -> None:
    kind = KINDS[name]

    def try_to_read(make: Callable[[], object]) -> None:
        make()
        value = read(kind)
        # A missing file may mean that there is nothing yet.
        assert value is REFUSED or (kind.path.is_symlink() and not value), value

    kind.path.unlink()
    try_to_read(kind.path.mkdir)
    kind.path.rmdir()
    try_to_read(lambda: os.mkfifo(kind.path))
    for target in ("nowhere", kind.path.name, "/dev/zero"):
        kind.path.unlink()
        try_to_read(lambda target=target: kind.path.symlink_to(target))  # type: ignore[misc]
    kind.path.unlink()
    with open(kind.path, "wb") as file:
        file.truncate(40 * 2**30)  # takes no place on the disk
    assert read(kind) is REFUSED


odd_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["../../x", "/etc/passwd", "\x1b[31m", "x" * 20_000]),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=5,
)


@st.composite
def mutations(draw: st.DrawFn, document: Any) -> Any:
    """A copy of a JSON document in which one to three values are gone or other ones."""
    document = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        if not (places := list(_places(document))):
            return document
        holder, key = draw(st.sampled_from(places))
        if draw(st.booleans()):
            holder[key] = draw(odd_values)
        else:
            del holder[key]
    return document


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (holder, key) inside nested lists and objects."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    places: list[tuple[Any, Any]] = []
    for key, item in items if isinstance(value, dict | list) else ():
        places += (
            [(value, key), *_places(item)] if isinstance(item, dict | list) else [(value, key)]
        )
    return places


@pytest.mark.parametrize("name", KINDS)
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_content_is_read_or_refused_in_one_line(
    original_world: Path, world: Path, name: str, data: st.DataObject
) -> None:
    """Random bytes anywhere in the file; mutated documents with checksums that fit."""
    kind = KINDS[name]
    content = (original_world / kind.path).read_bytes()
    if name in JSON_KINDS and data.draw(st.integers(0, 3)):
        lines = content.splitlines() if kind.path.suffix == ".jsonl" else [content]
        number = data.draw(st.integers(0, len(lines) - 1))
        document = data.draw(mutations(without(json.loads(lines[number]))))
        document |= {"checksum": "0" * 16}
        lines[number] = resealed(json.dumps(document).encode())
        content = b"\n".join(lines) + b"\n"
    else:
        start = data.draw(st.integers(0, len(content)))
        stop = data.draw(st.integers(start, len(content)))
        content = content[:start] + data.draw(st.binary(max_size=50)) + content[stop:]
    kind.path.write_bytes(content)
    read(kind)


ROPE = 'preset = "mini"\nencodings = ["rope"]\nseeds = [0]\n'


@pytest.mark.parametrize(
    "text",
    [
        ROPE + "[set]\nnum_layers = 1000000000",
        ROPE + "[set]\nsteps = " + "9" * 400,
        ROPE + "[set]\nlearning_rate = nan",
        ROPE + "[set]\ntested_digits = 4000000000000",
        ROPE + "[tune]\nlearning_rate = [[1], [2]]",
        ROPE.replace("[0]", f"[{', '.join(map(str, range(2_000)))}]"),
        ROPE.replace("mini", "../../mini"),
        ROPE.replace('"rope"', '"../rope"'),
        ROPE.replace('"rope"', '"\\u0000.py:X"'),
        "a" + ".a" * 9_000 + " = 1",
    ],
    ids=lambda text: text[-30:],
)
def test_a_sweep_past_all_measure_is_a_usage_error(world: Path, text: str) -> None:
    Path("mine.toml").write_text(text)
    result = call("sweep", "mine.toml", "--dry-run")
    assert result.code == 2 and result.out == "", result
    (line,) = result.err.splitlines()
    assert line.startswith("tape-arith: mine.toml"), line


@pytest.mark.parametrize("name", KINDS)
def test_a_command_names_the_damaged_file(original_world: Path, world: Path, name: str) -> None:
    kind = KINDS[name]
    content = kind.path.read_bytes()
    # The first lines of a file of lines are one too.
    parts = [] if kind.path.suffix == ".jsonl" else [content[: len(content) // 2], b""]
    for damaged in (*parts, b"\xff" * 3000, CONTENTS["deep lists"] + b"\n"):
        kind.path.write_bytes(damaged)
        result = call(*kind.command)
        shutil.rmtree("runs")
        shutil.copytree(original_world / "runs", "runs")
        assert result.code in (1, 2) and "Traceback" not in result.err, result
        last = result.err.splitlines()[-1]
        assert last.startswith("tape-arith: "), result.err
        assert kind.path.name in last or kind.path.parent.name in last, last
