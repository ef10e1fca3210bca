"""Compare scoring a grid by one teacher-forced pass with token-by-token decoding as published.

Published code takes one cell at a time, 100 rows of equal length, and reads the whole sequence
again for every token of the answer. The loop here does the same, on a sample of cells spread over
the grid. Both take the same rows, weights, precision and threads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import Options, Result, time_interleaved
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import Rows, pad
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.decoders.weights import final_weights, trained_record
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.registry.names import Name
from tape_arith.arith.runs.find import existing_run
from tape_arith.arith.scoring.score import score
from tape_arith.arith.scoring.threshold import low_precision_threshold, probed_problems
from tape_arith.arith.tasks.families.tokens import EOS, PAD
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems, concatenate, take
from tape_arith.models.flops import causal_workload, matmuls
from tape_arith.models.hardware import detect
from tape_arith.models.runner import Runner
from tape_arith.models.sequences import Sequences

_PARTS = (0.25, 0.75)
"""Positions of the sampled cells on each axis: the middles of the four quarters of the grid."""
_ROWS_PER_CELL, _QUICK_ROWS_PER_CELL = 100, 3


def measure(options: Options) -> Iterator[Result]:
    """Measure a sample of the grid up to each of --lengths digits, for a run or random weights.

    Without --lengths, the grid is that of the config. Raises Failure if a run's weights are too
    short for it.
    """
    hardware = detect(*options.compute.for_scoring)
    names, config, seed, weights = options.names("rope"), options.config(hardware), 0, None
    if options.run is not None:
        if options.encodings or options.preset or options.settings:
            raise UsageError("a run keeps its settings: no --pe, --preset or --set with --run")
        run = existing_run(options.run)
        record = trained_record(run)
        names, config, seed = (record.name,), record.config, record.seed
        weights = final_weights(run, record, hardware.device)
    for name in names:
        for digits in options.lengths or (config.tested_digits,):
            sizes = replace(config, tested_digits=max(digits, config.tested_digits))
            decoder = decoder_for(sizes, Name(name.encoding), seed).to(hardware.device)
            try:
                if weights is not None:
                    decoder.load_state_dict(weights)
            except RuntimeError as error:  # the run's table of lengths is shorter
                end = config.tested_digits
                reason = f"{options.run} ends at {end} digits: --lengths {end} measures it"
                raise Failure(reason) from error
            bucket = config.evaluation_bucket(max_digits=digits)
            label = f"{name}, {digits} digits"
            yield from _compare(label, Runner(decoder.eval(), hardware), bucket, options)


def _compare(label: str, runner: Runner, bucket: Bucket, options: Options) -> Iterator[Result]:
    """Compare one pass with the loop on the same rows of a grid."""
    decoder, hardware = runner.decoder, runner.hardware
    rows = _QUICK_ROWS_PER_CELL if options.quick else _ROWS_PER_CELL
    middles = (
        [max(axis.shortest, round(part * most)) for part in _PARTS]
        for axis, most in zip(load_task(bucket.task).axes, bucket.most, strict=True)
    )
    samples = _sample_cells(bucket, list(product(*middles)), rows)
    problems = concatenate([problems for problems, _ in samples])
    keys = np.concatenate([keys for _, keys in samples])
    cells = [pad(*sample, np.arange(len(sample[1]))) for sample in samples]
    probed = probed_problems(bucket, rows * bucket.num_cells)
    threshold = low_precision_threshold(runner, *probed)
    outcome = score(runner, problems, keys, threshold)
    exact = np.concatenate(_decode_cells(runner, cells))
    times = time_interleaved(
        {
            "pass": lambda _: score(runner, problems, keys, threshold),
            "loop": lambda _: _decode_cells(runner, cells),
        },
        options.seconds,
    )
    rates = {way: [len(keys) / seconds for seconds in times[way]] for way in times}
    again = 100 * float((np.abs(outcome.margin) < threshold).mean())
    agree = 100 * float((exact == outcome.exact).mean())
    source = f"weights of {options.run}" if options.run else "random weights"
    note = (
        f"{source}, {hardware.dtype_name}; {len(keys):,} rows, {rows} a cell, "
        f"{problems.lengths.mean():.1f} tokens a row; same exact answers on "
        f"{agree:.1f} % of rows, {int(exact.sum())} exact"
    )
    loop = Result.of("score", f"{label}: token by token", rates["loop"], "rows/s", note=note)
    yield loop
    note = f"{again:.0f} % of rows again in float32"
    one_pass = Result.of("score", f"{label}: one pass", rates["pass"], "rows/s", note=note)
    yield one_pass.against(loop, "token by token")
    answers = int((problems.lengths - problems.prompt_lengths).sum())
    workload = causal_workload((problems.lengths - 1).tolist())
    flops = sum(p.forward for p in matmuls(decoder.config, decoder.pe, workload, answers))
    useful = [flops / seconds for seconds in times["pass"]]
    note = "by formula; rows in float32 are not counted again"
    line = Result.of("score", f"{label}: useful FLOPs", useful, "FLOP/s", note=note)
    yield line.against(limits.product_limit(hardware, options.quick))


def _sample_cells(
    bucket: Bucket, cells: Sequence[tuple[int, ...]], count: int
) -> list[tuple[Problems, NDArray[np.int64]]]:
    """Return the first `count` problems of each cell, one from each block, and their keys.

    Problems whose prompts differ in length, as those of lists do, are separate samples.
    """
    lengths = bucket.axis_lengths(0, count * bucket.num_cells)
    samples = []
    for cell in cells:
        indices = np.flatnonzero((lengths == cell).all(axis=1)).tolist()
        problems = concatenate([bucket.problems(index, index + 1) for index in indices])
        keys = np.concatenate([bucket.keys(index, index + 1) for index in indices])
        for length in np.unique(problems.prompt_lengths):
            same = np.flatnonzero(problems.prompt_lengths == length)
            samples.append((take(problems, same), keys[same]))
    return samples


def _decode_cells(runner: Runner, cells: Sequence[Rows]) -> list[NDArray[np.bool_]]:
    """Decode as many cells at once as the suite scores batches at once."""
    return list(runner.map(lambda cell: _decode_cell(runner, cell), cells))


def _decode_cell(runner: Runner, cell: Rows) -> NDArray[np.bool_]:
    """Decode greedily and return which answers are exact, bool [n].

    Reads the whole sequence again for each token, until every row has ended or is longer than any
    answer. `cell` holds n rows whose prompts are equally long.
    """
    (prompt,) = set(cell.prompt_lengths.tolist())
    tokens, final_lengths, keys = (
        torch.from_numpy(array).to(runner.hardware.device)
        for array in (cell.inputs[:, :prompt], cell.final_lengths, cell.keys)
    )
    answers, counted = (array[:, prompt - 1 :] for array in (cell.targets, cell.is_answer))
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(answers.shape[1]):
        with torch.no_grad():
            logits = runner(Sequences(tokens, final_lengths, keys))[:, -1]
        following = logits.argmax(-1)
        tokens = torch.cat([tokens, following[:, None]], dim=1)
        ended |= following == EOS
        if ended.all():
            break
    decoded = np.full(answers.shape, PAD, np.int64)
    decoded[:, : tokens.shape[1] - prompt] = tokens[:, prompt:].cpu().numpy()
    # Tokens after a row's end token do not count.
    return np.asarray(((decoded == answers) | ~counted).all(axis=1))
