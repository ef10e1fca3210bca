"""Generating problems with hashes on disk, beside this machine's limits and the field's loop.

What is timed is the command `tape-arith generate` as a person types it, start of the interpreter
and of its workers included, until every file is on the disk with its hash.
"""

import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import (
    Measurement,
    Options,
    Timing,
    child_environment,
    not_measured,
    rounds,
    timed,
)
from tape_arith.arith.bench.memory import TreeMemory
from tape_arith.arith.data.bucket import LENGTH_TYPE, Bucket
from tape_arith.arith.data.manifest import Manifest
from tape_arith.arith.errors import Failure
from tape_arith.arith.tasks.vocabulary import EOS, SYMBOLS, token
from tape_arith.arith.training.config import Config

STAGE = "generate"
TAKES = frozenset({"preset", "settings", "directory", "count"})

COUNT, QUICK_COUNT = 20_000_000, 2_000
SAMPLE, QUICK_SAMPLE = 200_000, 500
PROBE = 20_000

BOTH = "strings and tokens"
IDS = {symbol: token(symbol) for symbol in SYMBOLS}


class Generated(NamedTuple):
    """One call of the command: seconds, bytes on disk, problems, and the memory of all processes
    (None where the system does not tell) with their number."""

    seconds: float
    size: int
    problems: int
    memory: int | None
    processes: int


def measure(options: Options) -> Iterator[Measurement]:
    """Time, rates, memory; the limit of this machine; the field's loop on a sample."""
    config = options.config("paper-40")
    workers = options.cores
    bucket = Bucket(config.task, config.trained_digits, 0, "train")
    count, note = _count(options, bucket, workers)
    seconds, limit_name = limit(bucket, count, workers, options)
    sample = QUICK_SAMPLE if options.quick else SAMPLE
    texts = list(field_texts(bucket.max_digits, sample))
    loop = {
        "strings alone": lambda: list(field_texts(bucket.max_digits, sample)),
        "tokenizing alone": lambda: field_tokens(texts),
        BOTH: lambda: field_tokens(field_texts(bucket.max_digits, sample)),
    }
    # Before and after, since a machine that others use is not the same from minute to minute.
    before = rounds(loop, repeats=2)
    found = generated(options.folder, config, count, workers)
    after = rounds(loop, repeats=2)

    what = f"{found.problems:,} problems of {config.task} bucket {bucket.max_digits}"
    of = _processes(workers)
    yield Measurement(STAGE, f"{what}, {of}", found.seconds, "s", seconds, limit_name, note)
    disk = _disk(options, workers)
    yield Measurement(
        STAGE, "bytes on disk", found.size / found.seconds, "B/s", disk.rate, disk.name
    )
    memory = "memory of all processes"
    if found.memory is None:
        yield not_measured(STAGE, memory, "B", "the system does not tell")
    else:
        note = f"{_processes(found.processes)}; the sum of the most that each ever held"
        yield Measurement(STAGE, memory, float(found.memory), "B", note=note)
    timings = {name: Timing.of([*before[name], *after[name]]) for name in loop}
    for name, timing in timings.items():
        rate, spread = timing.rate(sample)
        yield Measurement(
            STAGE,
            f"the field's loop, {name}",
            rate,
            "problems/s",
            note=f"our stand-in: {sample:,} problems in memory, 1 process, no disk, no hash",
            spread=spread,
            repeats=timing.repeats,
        )
    theirs, _ = timings[BOTH].rate(sample)
    ours = found.problems / found.seconds
    name = f"the field's loop, {BOTH}"
    yield Measurement(STAGE, f"problems, {of}", ours, "problems/s", theirs, name)
    yield Measurement(
        STAGE, "problems, a process", ours / workers, "problems/s", theirs, name, f"of {workers}"
    )


def limit(bucket: Bucket, count: int, workers: int, options: Options) -> tuple[float, str]:
    """The seconds that no generator of these problems could go below here, and what binds: the
    digits of its operands, or its bytes through the hash or onto the disk."""
    scale = limits.scale_of(options.quick)
    digits = count * (bucket.max_digits + 1)  # of two operands, lengths uniform in 1 .. W
    probe = bucket.problems(0, min(count, bucket.num_pairs))
    size = count * (len(probe.tokens) / len(probe.lengths) + LENGTH_TYPE.itemsize)
    drawn, hashed = limits.digit_limit(workers, scale), limits.hash_limit(workers, scale)
    written = _disk(options, workers)
    return max(
        (digits / drawn.rate, drawn.name),
        (size / hashed.rate, hashed.name),
        (size / written.rate, written.name),
    )


def generated(parent: Path, config: Config, count: int, workers: int) -> Generated:
    """Run the command in a new folder below `parent`, which is removed again.

    Errors: Failure with the command's own words where it fails.
    """
    with _folder(parent) as folder:
        out = folder / "data"
        settings = {"task": config.task, "trained_digits": config.trained_digits}
        settings["tested_digits"] = config.trained_digits
        command = [sys.executable, "-c", "from tape_arith import cli; cli.main()", "generate"]
        command += ["--preset", "mini", "--out", str(out)]
        command += ["--count", str(count), "--workers", str(workers)]
        command += [word for k, v in settings.items() for word in ("--set", f"{k}={v}")]
        began = perf_counter()
        process = subprocess.Popen(
            command,
            env=child_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            with TreeMemory(process.pid) as memory:
                _, told = process.communicate()
        except BaseException:
            process.kill()
            raise
        seconds = perf_counter() - began
        if process.returncode:
            raise Failure(f"tape-arith generate failed: {(told.splitlines() or [''])[-1]}")
        manifest = Manifest.load(out)
        size = sum(file.stat().st_size for file in out.iterdir())
        return Generated(seconds, size, manifest.count, memory.bytes, memory.processes)


def field_texts(max_digits: int, count: int, seed: int = 0) -> Iterator[str]:
    """Our stand-in for the field's generator: one problem at a time, Python integers and strings,
    every pair of operand lengths equally often.

    >>> list(field_texts(1, 2))
    ['7+7=41', '1+5=6']
    """
    draw = random.Random(seed).randint
    lengths = range(1, max_digits + 1)
    pairs = [(i, j) for i in lengths for j in lengths]
    for number in range(count):
        i, j = pairs[number % len(pairs)]
        a = draw(10 ** (i - 1), 10**i - 1)
        b = draw(10 ** (j - 1), 10**j - 1)
        yield f"{str(a)[::-1]}+{str(b)[::-1]}={str(a + b)[::-1]}"


def field_tokens(texts: Iterable[str]) -> list[list[int]]:
    """And for its tokenizing loop: a dict per character, and the end token.

    >>> field_tokens(["7+7=41"])
    [[11, 14, 11, 17, 8, 5, 3]]
    """
    return [[*(IDS[character] for character in text), EOS] for text in texts]


def _count(options: Options, bucket: Bucket, workers: int) -> tuple[int, str]:
    """How many problems: as asked; else the goal's number, less where it would take too long."""
    if options.count is not None:
        return options.count, ""
    if options.quick:
        return QUICK_COUNT, ""
    probe = timed(lambda: bucket.problems(0, PROBE), repeats=3)
    affordable = int(0.5 * options.seconds * workers * PROBE / probe.median)
    if affordable >= COUNT:
        return COUNT, ""
    count = max(PROBE, affordable // 1_000_000 * 1_000_000)
    return count, f"not the {COUNT:,} of the goal, which would take too long here"


def _processes(number: int) -> str:
    return f"{number} process{'es' if number > 1 else ''}"


def _disk(options: Options, workers: int) -> limits.Limit:
    """The better of one file at a time and one a worker."""
    folder, scale = options.folder, limits.scale_of(options.quick)
    return max(limits.disk_limit(folder, writers, scale) for writers in {1, workers})


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=parent, prefix="bench-"))
    except OSError as error:
        raise Failure(f"cannot write to {parent}: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
