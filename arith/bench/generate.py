"""Compare the time of `tape-arith generate` with this machine's limits.

The whole command is timed, from its start until every file is on the disk with its hash.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import Options, Result
from tape_arith.arith.data.bucket import LENGTH_TYPE, Bucket
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.sweeps.engines.worker import COMMAND_LINE
from tape_arith.arith.tasks.families.tokens import DIGIT_ZERO
from tape_arith.arith.tasks.task import Problems

_COUNT, _QUICK_COUNT = 5_000_000, 2_000


def measure(options: Options) -> Iterator[Result]:
    """Measure the command, and compare it with the limit of this machine."""
    config = load_preset(options.preset or "paper-40").with_settings(options.settings)
    bucket = config.bucket(0)
    count = options.count or (_QUICK_COUNT if options.quick else _COUNT)
    workers = options.cores
    least, limit_name = _least_seconds(bucket, count, workers, options.quick)
    seconds, size = _run_command(bucket, count, workers)
    threads = f"{workers} thread{'s' if workers > 1 else ''}"
    name = f"{count:,} problems of {config.task} bucket {bucket.max_digits}, {threads}"
    yield Result("generate", name, seconds, "s", least, limit_name)
    for name, amount, unit in (("problems", count, "problems/s"), ("bytes on disk", size, "B/s")):
        yield Result("generate", name, amount / seconds, unit, amount / least, limit_name)


def _least_seconds(bucket: Bucket, count: int, workers: int, quick: bool) -> tuple[float, str]:
    """Return a lower bound, in seconds, for generating the problems here, and the limit behind it.

    That limit is drawing the operands' digits, hashing the bytes or writing them to disk.
    """
    probe = bucket.problems(0, min(count, bucket.num_cells))
    scale = count / len(probe.lengths)
    digits = scale * _prompt_digits(probe)
    size = scale * len(probe.tokens) + count * LENGTH_TYPE.itemsize
    disks = [limits.disk_limit(files, quick) for files in {1, workers}]
    amounts = [
        (digits, limits.digit_limit(workers, quick)),
        (size, limits.hash_limit(workers, quick)),
        (size, max(disks, key=lambda disk: disk.value or 0.0)),
    ]
    return max((amount / (limit.value or 1.0), limit.name) for amount, limit in amounts)


def _prompt_digits(problems: Problems) -> int:
    """Count the digits of the prompts, which are drawn; zeros of the format `pad` count too."""
    answers = np.repeat(problems.starts + problems.prompt_lengths, problems.lengths)
    digits = (problems.tokens >= DIGIT_ZERO) & (problems.tokens < DIGIT_ZERO + 10)
    return int(np.count_nonzero(digits & (np.arange(len(digits)) < answers)))


def _run_command(bucket: Bucket, count: int, workers: int) -> tuple[float, int]:
    """Run the command in a temporary folder; return its seconds and the bytes on disk.

    Raises Failure with the command's last message.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        out = Path(folder) / "data"
        command = [sys.executable, *COMMAND_LINE, "generate", "--preset", "mini"]
        command += ["--task", bucket.task, f"--out={out}", f"--count={count}"]
        command += [f"--workers={workers}"]
        for use in ("trained", "tested"):
            command += [f"--set={use}_digits={bucket.max_digits}"]
            command += [f"--set={use}_operands={bucket.max_operands}"]
        began = perf_counter()
        ended = subprocess.run(command, capture_output=True, text=True)
        seconds = perf_counter() - began
        if ended.returncode:
            last_line = (ended.stderr.splitlines() or [""])[-1]
            raise Failure(f"tape-arith generate failed: {last_line}")
        return seconds, sum(file.stat().st_size for file in out.iterdir())
