"""Models that are trained elsewhere, language models too: problems to train on, and their grid."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.api.arguments import AtLeastOne, Seed, Shots, checked
from tape_arith.arith.api.processes import configure
from tape_arith.arith.api.runs import recipe
from tape_arith.arith.data.bucket import EVALUATION, SPLITS, known_split
from tape_arith.arith.data.rows import pad
from tape_arith.arith.errors import USER_CODE_ERRORS, UsageError, describe_error, unknown
from tape_arith.arith.files import slug
from tape_arith.arith.grids.facts import About
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.harness.prompts import TEMPLATE, Prompts, plain
from tape_arith.arith.machine import own_version
from tape_arith.arith.registry.declarations import MODEL
from tape_arith.arith.registry.locate import is_encoding
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.stopping import Stopper, stopping
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.terminal import bar

if TYPE_CHECKING:
    from torch import Tensor

TRAIN = "train"
_PROBED = 16
"""Problems on which a model of others is tried before it is scored."""


class Batch(NamedTuple):
    """Problems in rows of T tokens, padded on the right with 0.

    tokens   int64 [n, T]     what a model reads, all tokens but the last
    targets  int64 [n, T]     the token after each
    mask     bool  [n, T]     the targets that count: the answer and its end token
    cell     int64 [n, axes]  the place of each problem in the arrays of a grid
    """

    tokens: NDArray[np.int64]
    targets: NDArray[np.int64]
    mask: NDArray[np.bool_]
    cell: NDArray[np.int64]


@checked
def problems(
    preset: str,
    split: str = EVALUATION,
    *,
    task: str | None = None,
    seed: Seed = 0,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Iterator[Batch]:
    """Return the problems of a preset in batches of its size, in the order that its runs take them.

    split           "train" for one batch a step of the budget; "evaluation", or "carry", for the
                    problems of a grid
    seed            the seed of the training problems
    settings, more  values that replace the preset's, as in steps=60
    """
    _, config = recipe(preset, task, {**(settings or {}), **more})
    shortest = [axis.shortest for axis in load_task(config.task).axes]
    if split == TRAIN:
        from tape_arith.arith.training.batches import Batches

        batches = Batches(config.bucket(seed), config.bucket(seed), config)
        parts = (batches.problems(step)[0] for step in range(config.steps))
    else:
        if split not in SPLITS:
            raise unknown("split", split, (TRAIN, *SPLITS))
        bucket, size = config.evaluation_bucket(split), config.batch_size
        count = config.problems_per_cell * bucket.num_cells
        parts = (bucket.problems(i, min(i + size, count)) for i in range(0, count, size))

    def batch(part: Any) -> Batch:
        places = np.arange(len(part.lengths))
        rows = pad(part, places, places)  # keys are for encodings that draw random numbers
        targets = rows.targets.copy()  # so that a change of one changes no input
        return Batch(rows.inputs, targets, rows.is_answer, part.axis_lengths - shortest)

    return map(batch, parts)


@checked
def score_model(
    model: "Callable[[Tensor, Tensor], Tensor]",
    preset: str,
    *,
    name: str,
    seed: Seed = 0,
    split: str = EVALUATION,
    max_digits: AtLeastOne | None = None,
    same_budget: bool = False,
    task: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Grid:
    """Score a model that was trained elsewhere, in float32; return its grid.

    Problems that training has seen are not told apart.

    model           a torch.nn.Module or a function. It takes tokens, int64 [B, T], and the number
                    of tokens of each row, int64 [B], and returns logits [B, T, V] of the next
    name            its name in figures, unlike those of `tape-arith list`
    seed            which of several trainings it is
    split           "evaluation", or "carry" for problems with long carry chains
    max_digits      digits of the longest operands; None for the preset's `tested_digits`
    same_budget     whether it was trained on the preset's budget, as only its owner knows: the grid
                    may then stand in one figure with runs. Else it has no budget
    settings, more  values that replace the preset's

    Raises UsageError for a model that fails, or is not causal, not deterministic or not finite.
    """
    import torch

    from tape_arith.arith.contracts.model import broken_by
    from tape_arith.arith.decoders.build import decoder_around
    from tape_arith.arith.decoders.environment import scoring_facts
    from tape_arith.arith.scoring.score_grid import score_grid, scoring_now
    from tape_arith.arith.scoring.session import empty_grid
    from tape_arith.models.hardware import detect
    from tape_arith.models.runner import Runner

    if not name.strip() or is_encoding(name):
        raise UsageError(f"name='{name}' is empty or names an encoding: give a name of its own")
    configure()
    chosen, config = recipe(preset, task, {**(settings or {}), **more})
    bucket = config.evaluation_bucket(known_split(split), max_digits)
    record = RunRecord(
        encoding=name,
        seed=seed,
        preset=chosen,
        config=config,
        task_version=bucket.version,
        first_steps=config.steps,
        data=None,
        version=own_version(),
    )
    grid = empty_grid(record, bucket, config.problems_per_cell)
    if not same_budget:
        grid.budget = replace(grid.budget, steps=0, first_steps=0, batch_size=0)
    grid.about = About(label=name, kinds=[MODEL], papers=[])
    # A function of others may not be made for several threads.
    hardware = replace(detect(compiled=False).in_float32(), threads=1)
    decoder = decoder_around(model, config)
    first = bucket.problems(0, min(_PROBED, config.problems_per_cell * bucket.num_cells))
    rows = pad(first, places := np.arange(len(first.lengths)), places)
    try:
        broken = broken_by(decoder, *map(torch.from_numpy, (rows.inputs, first.lengths - 1)))
    except USER_CODE_ERRORS as error:
        raise UsageError(f"{name} cannot be scored: {describe_error(error)}") from error
    if broken:
        raise UsageError(f"{name} cannot be scored: {broken}")
    runner = Runner(decoder, hardware)
    now = scoring_now(runner, scoring_facts(runner.hardware))
    with bar(f"score {name} seed {seed}", config.problems_per_cell * bucket.num_cells) as update:
        score_grid(runner, bucket, grid, save=lambda grid: None, progress=update, now=now)
    return grid


@checked
def score_language_model(
    api: str,
    arguments: str,
    *,
    preset: str = "mini",
    task: str | None = None,
    template: str = TEMPLATE,
    shots: Shots = 0,
    out: str | Path | None = None,
    fresh: bool = False,
    stopper: Stopper | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Grid:
    r"""Return the grid of a language model. An interrupted call continues; nothing is asked twice.

    api             the kind of the model, as in `lm_eval --model hf`
    arguments       those of `lm_eval --model_args`, as in "pretrained=gpt2"
    preset          the preset whose grid it is
    task            a task, written as it says; None: the preset's, numbers as people write them
    template        how a problem is written, as in r"Q: {problem}\nA: {answer}"
    shots           number of solved examples before each problem
    out             the folder for grid.json, heatmap.png and every answer
    settings, more  values that replace the preset's, as in problems_per_cell=10
    """
    from tape_arith.arith.harness import score
    from tape_arith.arith.harness.model import LanguageModel

    if task is None and "@" not in preset:
        task = plain(load_preset(preset).task)
    name, config = recipe(preset, task, {**(settings or {}), **more})
    prompts, model = Prompts(config, template, shots), LanguageModel(api, arguments)
    default_out = Path("language-models", slug(name), f"{slug(model.name)}-{shots}-shot")
    with stopping(stopper) as stop:
        return score.score_language_model(
            model, prompts, name, config, Path(out or default_out), fresh=fresh, should_stop=stop
        )
