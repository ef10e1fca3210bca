"""Lengths beyond which a learned table has untrained rows, against the gradients of its rows."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tape_arith.arith.compare.captions import footnote
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import pad
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.grids.panel import Panel
from tape_arith.arith.registry.locate import locations
from tape_arith.arith.registry.names import parse
from tape_arith.arith.scoring.score import sequences
from tape_arith.arith.tasks.load import load_task
from tape_arith.arith.tasks.task import Problems, concatenate
from tape_arith.models.decoder import Decoder
from tests.helpers.small_training import perturbed, small
from tests.helpers.tiny_runs import done, settings

TRAINED, TESTED = 3, 40
NAMES = ["abacus", "abacus:k=2", "coupling:s=5", "bipe", "bipe:k=2", "bipe:rows=3", "learned"]
NAMES += ["learned-offset", "t5", "t5:max_distance=20", "shaw", "shaw:kmax=20", "shaw:kmax=4"]
NAMES += ["abacus:k=3+t5:max_distance=20", "rope", "rand-learned", "tape:start=learned"]


def rows(decoder: Decoder, problems: Problems, keys: np.ndarray) -> dict[str, Tensor]:
    """Return which rows of each table these problems use: bool[rows], by the table's name."""
    decoder.zero_grad()
    batch = pad(problems, keys, np.arange(len(keys)))
    lengths = torch.from_numpy(problems.lengths - 1)
    real = torch.arange(batch.inputs.shape[1]) < lengths[:, None]
    decoder(sequences(batch, "cpu"))[real].square().sum().backward()
    tables = {n: p for n, p in decoder.pe.named_parameters() if n.endswith(("table", "keys"))}
    used = {n: p.grad for n, p in tables.items() if p.grad is not None}
    return {name: (grad != 0).any(1) for name, grad in used.items()}


@pytest.mark.parametrize("name", NAMES)
def test_rows_within_reach_are_trained_and_the_next_is_not(name: str) -> None:
    config = small(trained_digits=TRAINED, tested_digits=TESTED)
    decoder = perturbed(decoder_for(config, parse(name), 0).double(), 0.4)
    bucket, reach = Bucket("addition", TRAINED, 0, "train"), decoder.pe.trained_reach()
    count = 3_000 if "rand" in name else 900  # enough that every row in reach is met
    trained = rows(decoder.train(), bucket.problems(0, count), bucket.keys(0, count))
    decoder.eval()
    task = load_task("addition")

    def is_beyond(digits: int) -> bool:
        """The answer has a digit more, the sequence twice as many, two signs and its end."""
        lengths = {"digits": digits + 1, "tokens": 3 * digits + 4}
        return any(lengths[unit] > reach[unit] for unit in reach)

    last = max(digits for digits in range(1, 31) if not is_beyond(digits))
    for digits in (1, last, min(last + 1, 30), 30):
        problems = concatenate([task.parse(f"{'9' * digits}+{'9' * digits}")])
        used = rows(decoder, problems, np.array([1]))
        untrained = any(bool((used[table] & ~trained[table]).any()) for table in used)
        assert untrained == is_beyond(digits), (digits, reach)


def test_the_other_built_in_encodings_have_no_table_that_ends() -> None:
    config = small(trained_digits=TRAINED, tested_digits=TESTED)
    names = {place.name for place in locations("encoding") if place.is_builtin}
    limited = {n for n in names if decoder_for(config, parse(n), 0).pe.trained_reach()}
    assert limited == {"abacus", "coupling", "bipe", "learned", "t5", "shaw"}


def test_figures_say_so_once(here: Path) -> None:
    for name in ("abacus:k=0", "coupling:s=1", "rope", "learned"):
        done("train", "--pe", name, *settings())
    grids = [Grid.load(here / f"runs/mini/{name}/seed-0/grid.json") for name in
             ("abacus@k=0", "coupling@s=1", "rope", "learned")]  # fmt: skip
    note = footnote([Panel.of([grid]) for grid in grids], {"learned": "Learned"})
    for words in ("3 digits: abacus:k=0, coupling:s=1.", "10 tokens: Learned."):
        assert note.count(words) == 1
    assert "never trained" not in footnote([Panel.of([grids[2]])])
    assert "3 digits: Abacus" in done("leaderboard").out
    done("score", "runs/mini/abacus@k=0/seed-0", "--max-digits", 2)
    assert "untrained" not in (here / "runs/mini/abacus@k=0/seed-0/grid-to-2.json").read_text()
