"""No file takes more than 2 GB to be refused, whatever it says of sizes: each is read by a process
that gets no more. And a short run of the fuzzer."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from arith.reading import MOST_BYTES
from tests.robustness.damage import FOREIGN
from tests.robustness.fuzzing import slug
from tests.robustness.kinds import KINDS

ROOT = Path(__file__).parents[2]
BOUNDED = """
import resource, sys
from arith.errors import Failure, UsageError
from tests.robustness.kinds import KINDS

kind = KINDS[sys.argv[1]]
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2 * 2**30, resource.RLIM_INFINITY))
before = kind.file.read_bytes()
for line in sys.stdin:
    start, piece, times = line.split(" ")
    with open(kind.file, "wb") as file:
        file.write(bytes.fromhex(start) + bytes.fromhex(piece) * int(times))
    try:
        kind.read(kind.file)
        print("read")
    except (Failure, UsageError) as error:
        assert kind.file.stem in str(error) or kind.file.parent.name in str(error), error
        print("refused")
    kind.file.write_bytes(before)
"""
LARGE = [
    (b'{"a":[', b"[],"),
    (b'{"a":[', b"{},"),
    (b'{"a":[', b'{"":1},'),
    (b'{"a":[', b'"",'),
    (b'{"a":[', b"1.5,"),
    (b"", b"9"),
    (b"", b"a"),
    (b"", b"\n"),
    (b"", b"["),
    (b'"', b"\xc3\xa4"),
    (b'"', b"\\ud83d\\ude00"),
    (b"", b'{"step":1,"loss":1}\n'),
    (b"", b'{"step":1,"loss":1,"state":{"a":[1,2,3]}}\n'),
]
"""How a file begins, and what fills the rest of it. A list that never ends is found out last."""


def whole(start: bytes, piece: bytes, size: int) -> str:
    """A line for BOUNDED: a file of `size` bytes."""
    return f"{start.hex()} {piece.hex()} {(size - len(start)) // max(len(piece), 1)}\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc, and limits memory as Linux does")
@pytest.mark.parametrize("name", ["grid", "metrics"])
def test_two_gigabytes_are_enough_to_refuse(world: Path, name: str) -> None:
    kept = LARGE if name == "grid" else LARGE[-2:]
    lines = [whole(start, piece, MOST_BYTES) for start, piece in kept]
    result = bounded(name, [*lines, whole(b"", b"\x00", 40 * MOST_BYTES)])
    assert "read" not in result.splitlines(), result


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc, and limits memory as Linux does")
@pytest.mark.parametrize("name", ["final weights", "encoding"])
def test_headers_that_promise_much(world: Path, name: str) -> None:
    shape = json.dumps({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}})
    contents = [*FOREIGN.values(), len(shape).to_bytes(8, "little") + shape.encode()]
    bounded(name, [whole(content, b"", 0) for content in contents])


def bounded(name: str, lines: list[str]) -> str:
    """What BOUNDED says of files made of `lines`, read as that of a kind."""
    result = subprocess.run(
        [sys.executable, "-c", BOUNDED, name],
        input="".join(lines),
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=240,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert len(result.stdout.splitlines()) == len(lines)
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grid", "metrics", "sweep"])
def test_a_short_run_of_the_fuzzer(tmp_path: Path, name: str) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: pip install atheris")
    result = subprocess.run(
        [sys.executable, "-m", "tests.robustness.fuzzing", slug(name), "--seconds", "3"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "stat::number_of_executed_units" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_fuzzer_knows_every_kind() -> None:
    assert len({slug(name) for name in KINDS}) == len(KINDS)
    assert all(slug(name).isascii() and " " not in slug(name) for name in KINDS)
