"""Generating problems with hashes on disk, beside this machine's limits.

The command `tape-arith generate` is timed as a person types it, its start
included, until every file is on the disk with its hash.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import Options, Result, time_call
from tape_arith.arith.data.bucket import LENGTH_TYPE, Bucket
from tape_arith.arith.data.dataset import Manifest
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.child_process import COMMAND_LINE
from tape_arith.arith.training.config import Config

STAGE = "generate"
OPTIONS = frozenset({"preset", "settings", "directory", "count"})

_COUNT, _QUICK_COUNT = 5_000_000, 2_000


class _Generated(NamedTuple):
    """One call of the command; `size` in bytes on disk."""

    seconds: float
    size: int
    problems: int


def measure(options: Options) -> Iterator[Result]:
    """The command beside the limit of this machine."""
    config, workers = options.config("paper-40"), options.cores
    bucket = Bucket(config.task, config.trained_digits, 0, "train")
    count = options.count or (_QUICK_COUNT if options.quick else _COUNT)
    least_seconds, limit_name = _least_seconds(bucket, count, options)
    generated = _run_command(options.folder, config, count, workers)
    problems = f"{generated.problems:,} problems of {config.task} bucket {bucket.max_digits}"
    threads = f"{workers} thread{'s' if workers > 1 else ''}"
    for name, amount, unit in (
        (f"{problems}, {threads}", None, "s"),
        ("problems", generated.problems, "problems/s"),
        ("bytes on disk", generated.size, "B/s"),
    ):
        value, limit = generated.seconds, least_seconds
        if amount is not None:
            value, limit = amount / value, amount / limit
        yield Result(STAGE, name, value, unit, limit, limit_name)


def _least_seconds(bucket: Bucket, count: int, options: Options) -> tuple[float, str]:
    """The seconds that no generator of these problems could go below here, and the limit that
    binds: the digits of its operands, or its bytes through the hash or onto the disk."""
    workers, quick = options.cores, options.quick
    digits = count * (bucket.max_digits + 1)  # of two operands, lengths uniform in 1 .. W
    probe = bucket.problems(0, min(count, bucket.num_pairs))
    size = count * (len(probe.tokens) / len(probe.lengths) + LENGTH_TYPE.itemsize)
    disks = [limits.disk_limit(options.folder, files, quick) for files in {1, workers}]
    amounts = [
        (digits, limits.digit_limit(workers, quick)),
        (size, limits.hash_limit(workers, quick)),
        (size, max(disks, key=lambda disk: disk.rate)),
    ]
    return max((amount / limit.rate, limit.name) for amount, limit in amounts)


def _run_command(parent: Path, config: Config, count: int, workers: int) -> _Generated:
    """Run the command in a new folder below `parent`, which is removed again.

    Raises Failure with the command's own words where it fails.
    """
    settings = {
        "task": config.task,
        "trained_digits": config.trained_digits,
        "tested_digits": config.trained_digits,
    }
    with _temporary_folder(parent) as folder:
        out = folder / "data"
        command = [sys.executable, *COMMAND_LINE, "generate", "--preset", "mini"]
        command += ["--out", str(out), "--count", str(count), "--workers", str(workers)]
        command += [word for k, v in settings.items() for word in ("--set", f"{k}={v}")]
        ended: list[subprocess.CompletedProcess[str]] = []
        seconds = time_call(
            lambda: ended.append(subprocess.run(command, capture_output=True, text=True))
        )
        if ended[0].returncode:
            last_line = (ended[0].stderr.splitlines() or [""])[-1]
            raise Failure(f"tape-arith generate failed: {last_line}")
        size = sum(file.stat().st_size for file in out.iterdir())
        return _Generated(seconds, size, Manifest.load(out).count)


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=parent, prefix="bench-"))
    except OSError as error:
        raise Failure(f"cannot write to {parent}: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
