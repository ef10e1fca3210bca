"""Scoring a grid by one teacher-forced pass, beside decoding token by token as it is published.

Both sides take the same rows of the same evaluation set, the same weights, the same precision and
the same threads; the loop stands in token_by_token.py.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic, perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import Measurement, Options, Timing, not_measured, rounds, timed
from tape_arith.arith.bench.sizes import TINY
from tape_arith.arith.bench.token_by_token import cell_of, decoded, end_to_end, lattice, sampled
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.runs.command_lines import why_no_weights
from tape_arith.arith.runs.find import existing_run
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.score import score_run
from tape_arith.arith.runs.weights import identity, load_state, load_weights
from tape_arith.arith.scoring.score import PROBE_ROWS, Outcome, low_precision_threshold, score
from tape_arith.arith.tasks.task import Problems
from tape_arith.arith.training import checkpoint
from tape_arith.arith.training.flops import causal, forward_flops, matmuls
from tape_arith.arith.version import own_version
from tape_arith.models.build import prepare
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.parse import Name, source_hashes

STAGE = "score"
TAKES = frozenset({"encodings", "preset", "settings", "run", "lengths"})

#: The sample is of a grid to so many digits, from a lattice of SIDES x SIDES of its cells.
DIGITS, QUICK_DIGITS = 80, 6
SIDES = (2, 3, 4, 5, 8)
ROWS_A_CELL, QUICK_ROWS_A_CELL = 100, 3
#: How much longer the yardstick is expected to take: about what was seen, for the choice above.
EXPECTED = 80


def measure(options: Options) -> Iterator[Measurement]:
    """The preset's whole grid, then the sample, once as the suite does it and once by the loop."""
    hardware = detect()
    with tempfile.TemporaryDirectory() as folder:
        for run in runs(options, hardware, Path(folder)):
            yield from whole_grid(run, hardware, options)
            for digits in options.lengths or (QUICK_DIGITS if options.quick else DIGITS,):
                yield from against_the_loop(run, digits, hardware, options)


class Run(NamedTuple):
    """A run's folder, where scoring it again spoils nothing, and a word on its weights."""

    folder: RunFolder
    weights: str


def runs(options: Options, hardware: Hardware, folder: Path) -> Iterator[Run]:
    """The run of --run, or one with random weights for each of --pe (rope, if none)."""
    if options.run is not None:
        if options.encodings or options.preset or options.settings:
            raise UsageError(
                "a run keeps its settings: neither --pe, --preset nor --set with --run"
            )
        there = existing_run(options.run)
        if not there.finished():
            raise UsageError(why_no_weights(there))
        record = there.record()
        tensors, facts = load_state(there.final, record, "cpu")
        yield Run(copied(folder / "run", record, tensors, facts), f"weights of {options.run}")
        return
    default = TINY if options.quick else {}
    preset = "paper-40" if hardware.device == "cuda" and not options.quick else "mini"
    config = options.config(preset, **default)
    for number, name in enumerate(options.names("rope")):
        record = RunRecord(
            encoding=str(name.encoding),
            seed=0,
            preset=options.preset or preset,
            config=config,
            task_version=Bucket(config.task, 1, 0, "evaluation").version,
            first_steps=config.steps,
            data=None,
            version=own_version(),
            sources=source_hashes(name.encoding),
        )
        decoder = decoder_for(config, Name(name.encoding), record.seed)
        tensors = {f"model/{key}": tensor for key, tensor in decoder.state_dict().items()}
        facts = {"step": config.steps, **identity(record)}
        there = copied(folder / str(number), record, tensors, facts)
        yield Run(there, "random weights")


def copied(
    path: Path, record: RunRecord, tensors: dict[str, Tensor], facts: dict[str, object]
) -> RunFolder:
    """A finished run in a folder of its own."""
    folder = RunFolder(path)
    folder.write_record(record)
    checkpoint.save(folder.final, tensors, facts)
    return folder


def whole_grid(run: Run, hardware: Hardware, options: Options) -> Iterator[Measurement]:
    """`tape-arith score RUN` from within: the evaluation set's hash, the grid, its file."""
    record = run.folder.record()
    config = record.config
    deadline = monotonic() + 0.5 * options.seconds
    began = perf_counter()
    grid = score_run(run.folder, should_stop=lambda: monotonic() >= deadline)
    seconds = perf_counter() - began
    side, rows = config.tested_digits, int(grid.total.sum())
    name = f"{record.encoding}: the {side}x{side} grid, {config.problems_per_cell} a cell"
    what = (
        f"{record.preset}: {config.num_layers} layers, hidden {config.hidden_size}; "
        f"{grid.scoring['dtype']}, {run.weights}"
        + ("; to compile is part of it, as for who scores a run" if hardware.compiles else "")
    )
    if grid.complete:
        yield Measurement(STAGE, name, seconds, "s", note=what)
    else:
        why = f"the time was up after {rows:,} of {config.problems_per_cell * side**2:,} rows"
        yield not_measured(STAGE, name, "s", f"{why}; {what}")
    if not rows:
        return
    yield Measurement(STAGE, f"{record.encoding}: rows of the grid", rows / seconds, "rows/s")
    bucket = Bucket(config.task, side, config.evaluation_seed, "evaluation")
    problems = bucket.problems(0, rows)
    answers = int((problems.lengths - problems.prompt_lengths).sum())
    decoder = loaded(run.folder, side, hardware)
    extent = causal((problems.lengths - 1).tolist())
    flops = forward_flops(matmuls(decoder.config, decoder.pe, extent, answers))
    limit = limits.product_limit(hardware, options.quick)
    yield Measurement(
        STAGE,
        f"{record.encoding}: useful FLOPs of the grid",
        flops / seconds,
        "FLOP/s",
        limit.rate,
        limit.name,
        "by formula, one pass; what is scored again in float32 is not counted",
    )


def loaded(folder: RunFolder, digits: int, hardware: Hardware) -> Decoder:
    """The run's decoder, to be scored to `digits` digits. Errors: Failure where its weights do not
    reach so far."""
    record = folder.record()
    config = replace(record.config, tested_digits=max(digits, record.config.tested_digits))
    decoder = decoder_for(config, record.name, record.seed)
    tensors, _ = load_state(folder.final, record, hardware.device)
    load_weights(decoder, tensors, folder.final)
    return prepare(decoder, hardware).eval()


def against_the_loop(
    run: Run, digits: int, hardware: Hardware, options: Options
) -> Iterator[Measurement]:
    """Both sides on the same rows of the grid to `digits` digits."""
    record = run.folder.record()
    config = record.config
    try:
        decoder = loaded(run.folder, digits, hardware)
    except Failure:  # a table has no rows for more
        why = f"its weights end at {config.tested_digits} digits: --lengths {config.tested_digits}"
        yield not_measured(STAGE, f"{record.encoding}: one pass", "rows/s", f"{why} measures it")
        return
    bucket = Bucket(config.task, digits, config.evaluation_seed, "evaluation")
    rows_a_cell = QUICK_ROWS_A_CELL if options.quick else ROWS_A_CELL

    def one_pass(problems: Problems, keys: NDArray[np.int64], threshold: float = 0.0) -> Outcome:
        return score(decoder, problems, keys, hardware, threshold)

    sides = SIDES[0]
    sample = sampled(bucket, lattice(digits, sides), rows_a_cell)
    if not options.quick:
        small = end_to_end(sample)
        took = timed(lambda: one_pass(*small), repeats=2).median
        affordable = 0.4 * options.seconds / (EXPECTED * took) * sides**2
        sides = max([n for n in SIDES if n**2 <= affordable], default=SIDES[0])
        sample = sampled(bucket, lattice(digits, sides), rows_a_cell)
    problems, keys = end_to_end(sample)
    cells = [cell_of(*each, hardware.device) for each in sample]
    probe = min(PROBE_ROWS, len(keys))
    threshold = low_precision_threshold(
        decoder, bucket.problems(0, probe), bucket.keys(0, probe), hardware
    )
    prepare(decoder, hardware)
    if hardware.compiles:  # graphs of every shape, before the clock starts
        one_pass(problems, keys, threshold)
        decoded(decoder, [cells[0], cells[-1]], hardware)
    first, again, loop = "one pass", "one pass, close ones again in float32", "token by token"
    outcomes: list[Outcome] = []
    found: list[NDArray[np.bool_]] = []
    taken = rounds(
        {
            first: lambda: outcomes.append(one_pass(problems, keys)),
            again: lambda: one_pass(problems, keys, threshold),
            loop: lambda: found.append(np.concatenate(decoded(decoder, cells, hardware))),
        },
        device=hardware.device,
        repeats=3,
        seconds=0.4 * options.seconds,
    )
    timing = {name: Timing.of(seconds) for name, seconds in taken.items()}
    exact, outcome = found[0], outcomes[0]
    close = float((np.abs(outcome.margin) < threshold).mean())
    agree = float((exact == outcome.exact).mean())
    theirs, spread = timing[loop].rate(len(keys))
    of = f"{record.encoding}: "
    yield Measurement(
        STAGE,
        f"{of}{loop}, batches of {rows_a_cell}, whole sequence again",
        theirs,
        "rows/s",
        note=f"the yardstick; {run.weights}, {hardware.dtype_name}; same exact answers on "
        f"{100 * agree:.1f} % of rows, {int(exact.sum())} exact",
        spread=spread,
        repeats=timing[loop].repeats,
    )
    for name in (first, again):
        ours, spread = timing[name].rate(len(keys))
        yield Measurement(
            STAGE,
            f"{of}{name}",
            ours,
            "rows/s",
            theirs,
            loop,
            f"the same {len(keys):,} rows, {rows_a_cell} of each of {sides}x{sides} cells spread "
            f"over the {digits}x{digits} grid, {problems.lengths.mean():.1f} tokens a row"
            + (f"; {100 * close:.0f} % of rows again" if name == again else ""),
            spread,
            timing[name].repeats,
        )
