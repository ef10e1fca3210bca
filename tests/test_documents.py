"""Damaged files of every kind: each is refused in one line that names the file."""

import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.dataset import Dataset, Manifest
from tape_arith.arith.data.write_dataset import generate
from tape_arith.arith.decoders.weights import load, save
from tape_arith.arith.documents import read_content, write_document
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.preset import PRESETS_FOLDER, load_preset
from tape_arith.arith.runs.record import Machine, RunRecord
from tape_arith.arith.runs.run import Run
from tape_arith.arith.sweeps.sweep import load_sweep
from tests.helpers.documents import MACHINE, METRICS, edit, edit_text
from tests.helpers.made_grids import EVALUATION, filled

BUCKET, COUNT = Bucket("addition", 2, 0, "train"), 64
SHA256 = "ab" * 32
SWEEP = 'preset = "mini"\nencodings = ["rope"]\nseeds = [0, 1]\n[set]\nsteps = 7\n'


class Kind(NamedTuple):
    """A kind of file: where one lies and what reads it; with a checksum, all damage is found."""

    file: str
    read: Callable[[Path], Any]
    has_checksum: bool = True


def read_tokens(path: Path) -> bytes:
    problems = Dataset(path.parent).problems(0, COUNT)
    return problems.tokens.tobytes() + problems.lengths.tobytes()


def read_tensors(path: Path) -> str:
    content, facts = load(path, "cpu")
    return str({name: tensor.tolist() for name, tensor in content.items()} | {"": facts})


def read_preset(path: Path) -> Config:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tape_arith.arith.runs.preset.PRESETS_FOLDER", path.parent)
        return load_preset(path.stem)


KINDS = {
    "run": Kind("run/run.json", lambda path: Run(path.parent).record()),
    "metrics": Kind("run/metrics.jsonl", lambda path: Run(path.parent).metrics(), False),
    "grid": Kind("run/grid.json", lambda path: Grid.load(path).content()),
    "dataset": Kind("set/manifest.json", lambda path: Manifest.load(path.parent)),
    "sweep": Kind("mine.toml", lambda path: load_sweep(str(path)), False),
    "preset": Kind("presets/mine.toml", read_preset, False),
}
BINARY = {
    "tokens": Kind("set/tokens.npy", read_tokens),
    "lengths": Kind("set/lengths.npy", read_tokens),
    "weights": Kind("run/weights/final.safetensors", read_tensors),
}
DOCUMENTS = [name for name, kind in KINDS.items() if kind.has_checksum]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good file of each kind."""
    folder = tmp_path_factory.mktemp("documents")
    run, config = Run(folder / "run"), load_preset("mini")
    run.write_record(
        RunRecord("rope", 0, "mini", config, 1, config.steps, SHA256, "0.8.0", {"mine.py": SHA256})
    )
    run.update_record(machines=(Machine(**MACHINE), Machine(**MACHINE | {"processes": 2})))
    run.write_timing("train", 6.5)
    save(run.final, {"model/a": torch.arange(99.0)}, {"step": 40})
    for step in (20, 40):
        run.add_metrics({**METRICS, "step": step})
    grid = filled([[3] * 4] * 4, total=10, settings={"task": "subtraction", "steps": 9})
    grid.save(run.grid_file())
    generate(folder / "set", BUCKET, COUNT)
    (folder / "mine.toml").write_text(SWEEP)
    (folder / "presets").mkdir()
    (folder / "presets/mine.toml").write_text((PRESETS_FOLDER / "mini.toml").read_text())
    return folder


@pytest.fixture
def good(made: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Kind, Path]]:
    """A kind and its good file, which is put back after the test."""
    kind = (KINDS | BINARY)[request.param]
    path = made / kind.file
    content = path.read_bytes()
    yield kind, path
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.write_bytes(content)


def refusal(kind: Kind, path: Path) -> str | None:
    """The line that says what is wrong with a file, or with its folder; None if it is read."""
    try:
        kind.read(path)
    except (Failure, UsageError) as error:
        message = str(error)
        assert str(path if kind in KINDS.values() else path.parent) in message, message
        assert message.isprintable() and len(message) < 2_000, message  # however long the value
        return message
    return None


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def edited(**changes: Any) -> Callable[[Path], None]:
    return partial(edit, **changes)


def replaced(old: str, new: str) -> Callable[[Path], None]:
    return partial(edit_text, old=old, new=new, count=1)


def holding(content: bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(content)


Case = tuple[str, Callable[[Path], Any], str]
"""A damage, what does it, and words of the line that refuses it."""
BYTES: list[Case] = [
    ("empty", holding(b""), "corrupt|is not|missing|say which"),
    ("zeros", holding(b"\0" * 3000), "corrupt|TOML|toml"),
    ("not UTF-8", holding(b"\xff\xfe\0"), "not UTF-8"),
    ("a pickle", holding(b"\x80\x04\x95posix\x8c\x06system\x93."), "corrupt"),
    ("deep", holding(b"[" * 15_000 + b"\n"), "corrupt|nested|TOML|toml"),
    ("40 GB", lambda path: os.truncate(path, 40 * 2**30), "larger than the"),
    ("a pipe", a_pipe, "cannot read .*: it is not a file"),
    ("a folder", a_folder, "cannot read"),
]
WHOLE = ("not UTF-8", "deep", "40 GB", "a pipe", "a folder")
"""Damages of a file of lines; by the others it has no line, or half of one."""


@pytest.mark.parametrize("good", KINDS | BINARY, indirect=True)
def test_a_flipped_bit_is_refused_or_changes_nothing(good: tuple[Kind, Path]) -> None:
    kind, path = good
    expected, content, draw = kind.read(path), path.read_bytes(), Random(kind.file)
    for _ in range(25):
        damaged = bytearray(content)
        position = draw.randrange(len(damaged))
        damaged[position] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        if refusal(kind, path) is None and kind.has_checksum:
            assert kind.read(path) == expected, position


OF_DOCUMENTS: list[Case] = [
    ("a list", holding(b"[1]"), "is not a .* of tape-arith"),
    ("another kind", edited(kind="bench"), "is not a .* of tape-arith"),
    ("a newer schema", edited(schema=3), "has schema 3 and this version reads 2: use the version"),
    ("an older schema", edited(schema=1), "has schema 1 and this version reads 2"),
    ("no checksum", replaced('"checksum"', '"checksun"'), "corrupt: its checksum"),
    ("NaN", replaced(": ", ": NaN, "), "corrupt: not JSON"),
    ("an unknown field", edited(odd=1), "corrupt: unknown key 'odd': .*Known: .*; "),
    ("a long field", edited(**{"x" * 20_000: 1}), "corrupt: unknown key 'xxx"),
]


CONFIG = load_preset("mini").as_dict()


def last_line(**changes: Any) -> Callable[[Path], None]:
    """Change fields of the last line."""

    def damage(path: Path) -> None:
        *lines, last = path.read_text().splitlines()
        path.write_text("\n".join([*lines, json.dumps({**json.loads(last), **changes})]) + "\n")

    return damage


def wrong_config(**changes: Any) -> Callable[[Path], None]:
    return edited(config={**CONFIG, **changes})


def wrong_evaluation(**changes: Any) -> Callable[[Path], None]:
    return edited(evaluation={**EVALUATION, **changes})


AXIS = {
    "name": "digits",
    "column": "digits",
    "counts": "digits",
    "shortest": 1,
    "trained": 2,
    "tested": 4,
}
FAULTS: list[tuple[str, Callable[[Path], None], str]] = [
    ("run", edited(seed=True), "'seed' must be a whole number, not True"),
    ("run", edited(seed=2**63), "'seed' must be at most 9223372036854775807"),
    ("run", edited(encoding="\x1b[31m"), "'encoding' must not hold control characters"),
    ("run", edited(sources={"mine.py": "ab"}), "must match pattern"),
    ("run", edited(on_nonfinite="hope"), "must be 'stop' or 'skip', not 'hope'"),
    ("run", wrong_config(steps=0), "'config.steps' must be at least 1, not 0"),
    ("run", edited(machines=[{}]), "'machines.0.tape_arith' is missing"),
    ("run", edited(seconds={"train": -1}), "'seconds.train' must be at least 0"),
    ("dataset", edited(tokens_sha256="ab"), "'tokens_sha256' must match .*generate --fresh --out"),
    ("dataset", edited(version=9), "of version 9 of addition"),
    ("grid", edited(preset="../x"), "'preset' must match"),
    ("grid", edited(blocks_done=99), "contradict each other"),
    ("grid", wrong_evaluation(max_digits=5), "must be 5 rows of 5"),
    ("grid", edited(total=[[10] * 4] * 3), "'total' must be 4 rows of 4"),
    ("grid", edited(exact=[[11] * 4] * 4), "contradict each other"),
    ("grid", edited(first_wrong=[[1e300] * 4] * 4), "'first_wrong.0.0' must be at most"),
    ("grid", edited(axes=[AXIS] * 3), "'axes' must have at most 2"),
    ("metrics", last_line(step=20), "line 2: step 20 comes after step 20"),
    ("metrics", last_line(loss="x"), "line 2: 'loss' must be a number, .*or remove that line"),
    ("metrics", last_line(small_grid={}), "'small_grid.in_distribution' is missing"),
    ("sweep", replaced("preset =", "presett ="), "unknown key 'presett': did you mean 'preset'"),
    ("sweep", replaced("[0, 1]", "[0, -1]"), "seeds"),
    ("sweep", replaced("steps = 7", "steps = 1979-05-27"), "steps"),
    ("preset", replaced("steps = ", "stpes = "), "unknown key 'stpes': did you mean 'steps'"),
    ("preset", replaced("steps = ", "a" + ".a" * 3000 + " = 1\nsteps = "), "nested too deep"),
    ("preset", replaced("steps = ", "base = 3\nsteps = "), "base is the name of a preset, not 3"),
    ("preset", replaced("steps = ", 'base = "mine"\nsteps = '), "its base leads back to itself"),
    ("preset", replaced("clip = ", "clip = nan #"), "'clip' must be a finite number, not nan"),
]


CASES = [
    *((kind, *case) for kind in KINDS for case in BYTES if kind != "metrics" or case[0] in WHOLE),
    *((kind, *case) for kind in DOCUMENTS for case in OF_DOCUMENTS),
    *((kind, words, damage, words) for kind, damage, words in FAULTS),
]


@pytest.mark.parametrize(
    ("good", "damage", "words"),
    [(kind, damage, words) for kind, _, damage, words in CASES],
    indirect=["good"],
    ids=[f"{kind}: {name}" for kind, name, *_ in CASES],
)
def test_damage_is_refused_in_a_line_that_names_it(
    good: tuple[Kind, Path], damage: Callable[[Path], Any], words: str
) -> None:
    kind, path = good
    damage(path)
    message = refusal(kind, path)
    assert message is not None and re.search(words, message), message


TEXTS = st.text("ab.\n\r\0\x1b\u202e\u00e9", max_size=3)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from([2**63 - 1, 2**64, 1e308, "../../x", "\x1b[31m", "x" * 20_000]),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("good", DOCUMENTS, indirect=True)
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_value_anywhere_is_read_or_refused(
    good: tuple[Kind, Path], data: st.DataObject
) -> None:
    kind, path = good
    whole = path.read_bytes()
    content = json.loads(whole)
    holder, key = data.draw(st.sampled_from(list(places(content))))
    holder[key] = data.draw(VALUES)
    path.write_text(json.dumps(content))
    edited()(path)
    refusal(kind, path)  # asserts that a refusal is one short line and names the file
    path.write_bytes(whole)


def test_a_line_that_was_cut_short_is_left_out(made: Path, tmp_path: Path) -> None:
    folder = Run(tmp_path)
    whole = (made / "run/metrics.jsonl").read_text()
    folder.metrics_file.write_text(whole[:-9])
    assert [line["step"] for line in folder.metrics()] == [20]
    folder.truncate_metrics(40)
    folder.add_metrics({**METRICS, "step": 40})
    assert folder.metrics_file.read_text() == whole


def test_a_document_comes_back_and_holds_no_nan(tmp_path: Path) -> None:
    path, content = tmp_path / "file", {"name": "Peña", "x": 0.1, "none": None, "betas": (0.9, 1)}
    write_document(path, content, "bench")
    assert read_content(path, "bench") == {**content, "betas": [0.9, 1]}
    with pytest.raises(ValueError, match="JSON"):
        write_document(path, {"x": float("nan")}, "bench")
    assert read_content(path, "bench")["x"] == 0.1


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (holder, key) inside nested lists and objects."""
    inside = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else inside:
        yield value, key
        yield from places(item)
