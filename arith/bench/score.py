"""Scoring a grid by one teacher-forced pass, beside decoding token by token as it is published.

Published code takes the cells one by one, 100 rows of one length each, and for every token of the
answer reads the whole sequence again. So does the loop here, on a sample of cells spread over the
grid. Both sides take the same rows, weights, precision and threads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, perf_counter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tape_arith.arith.bench import limits
from tape_arith.arith.bench.measure import TINY, Options, Result, rounds, time_call
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import Rows, pad
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.runs.folder import existing_run
from tape_arith.arith.runs.weights import final_weights, trained_record
from tape_arith.arith.scoring.score import PROBE_ROWS, low_precision_threshold, score
from tape_arith.arith.tasks.task import EOS, PAD, Problems, concatenate
from tape_arith.arith.training.config import Config
from tape_arith.models.build import prepare
from tape_arith.models.decoder import Decoder, causal, matmuls
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.parse import Name
from tape_arith.models.sequences import Sequences

#: The sample: rows of cells in the middle of each quarter of a grid to so many digits.
_DIGITS, _QUICK_DIGITS = 80, 6
_PARTS = (0.25, 0.75)
_ROWS_PER_CELL, _QUICK_ROWS_PER_CELL = 100, 3
_ROUNDS = 3
_BLOCKS_AT_ONCE = 8


class _Subject(NamedTuple):
    """A decoder to be scored: of a run, or with random weights."""

    name: Name
    config: Config
    seed: int = 0
    weights: dict[str, Tensor] | None = None
    source: Path | None = None

    def decoder(self, digits: int, hardware: Hardware) -> Decoder:
        """Build it with room for so many digits. Raises Failure if its weights end before them."""
        sizes = replace(self.config, tested_digits=max(digits, self.config.tested_digits))
        decoder = decoder_for(sizes, Name(self.name.encoding), self.seed).to(hardware.device)
        if self.weights is not None and self.source is not None:
            try:
                decoder.load_state_dict(self.weights)
            except RuntimeError as error:  # a table of lengths is shorter
                raise Failure(f"the weights of {self.source} do not fit: {error}") from error
        return prepare(decoder, hardware).eval()

    @property
    def origin(self) -> str:
        return "random weights" if self.source is None else f"weights of {self.source}"


def measure(options: Options) -> Iterator[Result]:
    """Measure the preset's whole grid, then the sample, by one pass and by the loop."""
    hardware = detect()
    for subject in _subjects(options, hardware):
        yield from _score_grid(subject, hardware, options)
        for digits in options.lengths or (_QUICK_DIGITS if options.quick else _DIGITS,):
            yield from _compare_with_loop(subject, digits, hardware, options)


def _subjects(options: Options, hardware: Hardware) -> list[_Subject]:
    """Return the run of --run, or random weights for each of --pe (rope, if none)."""
    if options.run is None:
        preset = "paper-40" if hardware.device == "cuda" and not options.quick else "mini"
        config = options.config(preset, TINY if options.quick else None)
        return [_Subject(name, config) for name in options.names("rope")]
    if options.encodings or options.preset or options.settings:
        raise UsageError("a run keeps its settings: neither --pe, --preset nor --set with --run")
    folder = existing_run(options.run)
    record = trained_record(folder)
    weights = final_weights(folder, record, hardware.device)
    return [_Subject(record.name, record.config, record.seed, weights, options.run)]


def _score_grid(subject: _Subject, hardware: Hardware, options: Options) -> Iterator[Result]:
    """Do the work of `tape-arith score`: problems, threshold and one pass, without its files."""
    config = subject.config
    decoder = subject.decoder(config.tested_digits, hardware)
    side, count = config.tested_digits, config.problems_per_cell
    bucket = Bucket(config.task, side, config.evaluation_seed, "evaluation")
    deadline, began = monotonic() + 0.5 * options.seconds, perf_counter()
    threshold = _threshold(decoder, bucket, count * bucket.num_pairs, hardware)
    blocks = 0
    while blocks < count and (blocks == 0 or monotonic() < deadline):
        start, blocks = blocks * bucket.num_pairs, min(blocks + _BLOCKS_AT_ONCE, count)
        stop = blocks * bucket.num_pairs
        score(decoder, bucket.problems(start, stop), bucket.keys(start, stop), hardware, threshold)
    seconds, rows = perf_counter() - began, blocks * bucket.num_pairs
    note = f"{config.num_layers} layers, hidden {config.hidden_size}; {subject.origin}"
    note += "; compiling is part of it" if hardware.compiles else ""
    if blocks < count:
        total = count * bucket.num_pairs
        note = f"the time was up after {rows:,} of {total:,} rows; {note}"
    name = f"{subject.name}: the {side}x{side} grid, {count} a cell"
    yield Result("score", name, seconds if blocks == count else None, "s", note=note)
    yield Result("score", f"{subject.name}: rows of the grid", rows / seconds, "rows/s")
    problems = bucket.problems(0, rows)
    answers = int((problems.lengths - problems.prompt_lengths).sum())
    workload = causal((problems.lengths - 1).tolist())
    flops = sum(p.forward for p in matmuls(decoder.config, decoder.pe, workload, answers))
    limit = limits.product_limit(hardware, options.quick)
    name = f"{subject.name}: useful FLOPs of the grid"
    note = "by formula, one pass; rows scored again in float32 are not counted"
    yield Result("score", name, flops / seconds, "FLOP/s", limit.rate, limit.name, note)


def _threshold(decoder: Decoder, bucket: Bucket, rows: int, hardware: Hardware) -> float:
    probe = min(PROBE_ROWS, rows)
    problems, keys = bucket.problems(0, probe), bucket.keys(0, probe)
    return low_precision_threshold(decoder, problems, keys, hardware)


def _compare_with_loop(
    subject: _Subject, digits: int, hardware: Hardware, options: Options
) -> Iterator[Result]:
    """Score the same rows of the grid to `digits` digits by one pass and by the loop."""
    config, one_pass = subject.config, f"{subject.name}: one pass"
    try:
        decoder = subject.decoder(digits, hardware)
    except Failure:  # a table has no rows for more
        end = config.tested_digits
        reason = f"its weights end at {end} digits: --lengths {end} measures it"
        yield Result("score", one_pass, None, "rows/s", note=reason)
        return
    bucket = Bucket(config.task, digits, config.evaluation_seed, "evaluation")
    rows = _QUICK_ROWS_PER_CELL if options.quick else _ROWS_PER_CELL
    middles = [max(1, round(part * digits)) for part in _PARTS]
    samples = _sample_cells(bucket, [(i, j) for i in middles for j in middles], rows)
    problems = concatenate([problems for problems, _ in samples])
    keys = np.concatenate([keys for _, keys in samples])
    cells = [pad(*sample, np.arange(rows)) for sample in samples]
    threshold = _threshold(decoder, bucket, len(keys), hardware)
    prepare(decoder, hardware)
    outcome = score(decoder, problems, keys, hardware, threshold)  # also compiles
    exact = np.concatenate(_decode_cells(decoder, cells, hardware))
    passes, loops = [], []
    for _ in rounds(_ROUNDS, 0.4 * options.seconds):
        passes.append(time_call(lambda: score(decoder, problems, keys, hardware, threshold)))
        loops.append(time_call(lambda: _decode_cells(decoder, cells, hardware)))
    close = float((np.abs(outcome.margin) < threshold).mean())
    agree = float((exact == outcome.exact).mean())
    by_loop = Result.of(
        "score",
        f"{subject.name}: token by token, batches of {rows}, whole sequence again",
        [len(keys) / seconds for seconds in loops],
        "rows/s",
        note=f"the yardstick; {subject.origin}, {hardware.dtype_name}; same exact answers on "
        f"{100 * agree:.1f} % of rows, {int(exact.sum())} exact",
    )
    yield by_loop
    yield Result.of(
        "score",
        one_pass,
        [len(keys) / seconds for seconds in passes],
        "rows/s",
        limit=by_loop.value,
        limit_name="token by token",
        note=f"the same {len(keys):,} rows, {rows} of each of 4 cells spread over the "
        f"{digits}x{digits} grid, {problems.lengths.mean():.1f} tokens a row; "
        f"{100 * close:.0f} % of them again in float32",
    )


def _sample_cells(
    bucket: Bucket, cells: Sequence[tuple[int, int]], count: int
) -> list[tuple[Problems, NDArray[np.int64]]]:
    """Return the first `count` problems of each cell, one of each block, and their keys."""
    lengths = bucket.operand_lengths(0, count * bucket.num_pairs)
    samples = []
    for cell in cells:
        indices = np.flatnonzero((lengths == cell).all(axis=1)).tolist()
        problems = concatenate([bucket.problems(index, index + 1) for index in indices])
        keys = np.concatenate([bucket.keys(index, index + 1) for index in indices])
        samples.append((problems, keys))
    return samples


def _decode_cells(
    decoder: Decoder, cells: Sequence[Rows], hardware: Hardware
) -> list[NDArray[np.bool_]]:
    """Decode cells, as many at once as the suite takes batches at once."""
    return list(hardware.parallel_map(lambda cell: _decode_cell(decoder, cell, hardware), cells))


def _decode_cell(decoder: Decoder, cell: Rows, hardware: Hardware) -> NDArray[np.bool_]:
    """Decode greedily and return which answers are exact, bool [n].

    Reads the whole sequence again for each token, until every row has ended or is longer than any
    answer. `cell` holds n rows whose prompts have one length.
    """
    (prompt,) = set(cell.prompt_lengths.tolist())
    tokens, final_lengths, keys = (
        torch.from_numpy(array).to(hardware.device)
        for array in (cell.inputs[:, :prompt], cell.final_lengths, cell.keys)
    )
    answers, counted = (array[:, prompt - 1 :] for array in (cell.targets, cell.is_answer))
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=hardware.device)
    for _ in range(answers.shape[1]):
        with torch.no_grad(), hardware.autocast():
            logits = decoder(Sequences(tokens, final_lengths, keys))[:, -1]
        following = logits.argmax(-1)
        tokens = torch.cat([tokens, following[:, None]], dim=1)
        ended |= following == EOS
        if ended.all():
            break
    decoded = np.full(answers.shape, PAD, np.int64)
    decoded[:, : tokens.shape[1] - prompt] = tokens[:, prompt:].cpu().numpy()
    # Tokens after a row's end token do not count.
    return np.asarray(((decoded == answers) | ~counted).all(axis=1))
