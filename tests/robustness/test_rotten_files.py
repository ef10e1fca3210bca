"""Whatever is wrong with a file: one line that names it, never an error that nobody expected, a
hang or another number than was written."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from arith.errors import Failure, UsageError
from arith.schemas import NEWEST
from arith.suite.plan import Kind as JobKind
from tests.robustness.damage import Damage, damages
from tests.robustness.kinds import KINDS, WRITTEN_ONLY, Kind
from tests.suite.tiny import call

ARITH = Path(__file__).parents[2] / "arith"
FLIPS = 24


@contextmanager
def restored(path: Path) -> Iterator[None]:
    """After the block `path` is as it was."""
    content = path.read_bytes()
    yield
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        path.rmdir()
    path.write_bytes(content)


def read(kind: Kind) -> tuple[str, Any]:
    """Whether the reader believes a file, and what it takes from it or says of it."""
    try:
        return "read", kind.read(kind.file)
    except (Failure, UsageError) as error:
        message = str(error)
        named = kind.file.stem in message or kind.file.parent.name in message
        assert named, f"the file is not named: {message}"
        assert "\n" not in message, message
        return "refused", message


def part(found: Any, whole: Any) -> bool:
    """Of what is added to line by line, the first lines are what was written too."""
    if isinstance(whole, list):
        return bool(found == whole[: len(found)])
    # The ends of jobs: a line that cannot be read is none, and what stood before it counts.
    return isinstance(found, dict) and found.keys() <= whole.keys()


@pytest.mark.parametrize("name", KINDS)
def test_damaged(world: Path, name: str) -> None:
    kind = KINDS[name]
    state, right = read(kind)
    assert state == "read", right
    with restored(kind.file):
        kind.file.unlink()
        _, missing = read(kind)
    believed = []
    for what, damage in damages(FLIPS):
        with restored(kind.file):
            damage(kind.file)
            state, found = read(kind)
        if state == "read" and what.startswith("a_link") and found == missing:
            continue
        if state == "read" and kind.sealed and found != right:
            assert kind.lines and part(found, right), f"{what}: {found} in place of {right}"
        believed += [what] if state == "read" and found != right else []
    assert read(kind) == ("read", right)
    if not kind.lines and kind.sealed:
        assert believed == []


@pytest.mark.parametrize("name", KINDS)
def test_swapped(world: Path, name: str) -> None:
    """Files of every other kind, and those of the other run, in a file's place."""
    kind = KINDS[name]
    right = kind.read(kind.file)
    for other in KINDS.values():
        if other.document == kind.document is not None:
            continue  # a grid in the place of a grid: what it is of, it says itself
        with restored(kind.file):
            content = (world / other.file).read_bytes()
            kind.file.write_bytes(content)
            state, found = read(kind)
        assert state == "refused" or not kind.sealed or found == right or part(found, right), other


COMMANDS = ("cut at 0.5", "flip 1", "flip 2", "noise", "empty", "deep", "a_pipe", "a_folder")


FORGIVING = {"environment", "ends", "log", "lock", "preset"}
"""Of these a command says nothing: it does without what cannot be read, or does not look at it."""


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_commands_say_it_in_a_line(world: Path, name: str) -> None:
    kind = KINDS[name]
    chosen: list[tuple[str, Damage]] = [pair for pair in damages(3) if pair[0] in COMMANDS]
    codes = []
    for what, damage in chosen:
        with restored(kind.file):
            damage(kind.file)
            result = call(*kind.command)
        codes.append(result.code)
        assert result.code in (0, 1, 2, 75), (what, result)
        assert "Traceback" not in result.err, (what, result.err)
        last = result.err.splitlines()[-1:]
        if result.code:
            assert last and last[0].startswith("tape-arith: "), (what, result.err)
            assert kind.file.name in last[0] or kind.file.parent.name in last[0], last
    assert any(codes) or name in FORGIVING, codes


def test_every_kind_that_is_written_is_among_them() -> None:
    """A new kind of document needs a place in NEWEST to be written, and one here to be read."""
    known = {kind.document for kind in KINDS.values()} - {None}
    assert known == NEWEST.keys() - WRITTEN_ONLY
    said = set()
    for file in ARITH.rglob("*.py"):
        text = file.read_text()
        if "write_json(" in text or "sealed(" in text:
            said |= set(re.findall(r'"kind": "([^"]+)"', text))
    assert said and said <= NEWEST.keys()
    assert not set(get_args(JobKind)) & NEWEST.keys()  # a job's kind is no document's


def test_every_ending_that_is_read_is_among_them() -> None:
    """Readers of files stand where `arith.reading` opens them: whoever opens one by himself must
    be listed here."""
    openers = set()
    for file in ARITH.rglob("*.py"):
        text = file.read_text()
        if re.search(_OPENS, text):
            openers.add(file.relative_to(ARITH).as_posix())
    assert openers == ALONE, sorted(openers ^ ALONE)


_OPENS = r"\.read_(text|bytes)\(|np\.load\(|json\.load\(|\bopen\([^)]*\"rb?\""
ALONE = {
    "suite/checkup/machine.py",  # /proc
    "suite/version.py",  # our own pyproject.toml
    "export/hub_folder.py",  # our own files
    "export/lm_eval.py",  # our own files
    "processes.py",  # /proc
    "reading.py",
    "suite/citing.py",  # our own files
    "bench/memory.py",  # /proc
    "bench/stages.py",  # our own files
    "export/carried.py",  # our own files
    "figures/report/page.py",  # our own files
    "files.py",  # what was just written
    "training/checkpoint.py",  # among KINDS; what was just written
}


def test_a_file_that_nobody_may_read(world: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    for kind in KINDS.values():
        kind.file.chmod(0)
        assert read(kind)[0] == "refused"
