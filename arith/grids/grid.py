"""The grid of exact match over the lengths of problems: counts of each cell, means.

A grid has a dimension for each axis of its task. For two numbers, cell (i, j) holds the problems
whose first operand has i digits and whose second has j; it is `array[i - 1, j - 1]` everywhere.
"""

import json
from dataclasses import asdict, dataclass, field
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from tape_arith.arith.data.bucket import EVALUATION
from tape_arith.arith.documents import read_document, with_checksum
from tape_arith.arith.files import write_text
from tape_arith.arith.grids.axes import (
    Axes,
    Bools,
    Ints,
    Region,
    cell_lengths,
    digit_pairs,
    region_mask,
    shape,
)
from tape_arith.arith.grids.evaluation_set import EvaluationSet
from tape_arith.arith.grids.facts import About, Budget, Evaluation
from tape_arith.arith.grids.grid_document import CELLS, SEEN_CELLS, GridDocument

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
CONVERGED = 0.99
LEAST_UNSEEN = 100
"""Fewest problems that training has not seen which decide convergence: one of them is 1 %."""
"""Exact match in distribution at or above which a run counts as converged."""
# Each share of right tokens is rounded to a multiple of this before it is added, so that sums are
# exact and do not depend on the order or the size of the chunks. The rounding is below 5e-10.
_SHARE_UNIT = 2.0**-30
# Tolerance for the last bit of a mean that equals its threshold.
SLACK = 1e-12


@dataclass(eq=False, kw_only=True, repr=False)
class Grid:
    """The score of one trained run: counts per cell, arrays of the shape of its axes."""

    encoding: str
    """Canonical name with its options, without the extrapolation."""
    extrapolation: str | None = None
    preset: str
    settings: dict[str, int | float | str] = field(default_factory=dict)
    """Settings that replace the preset's, for people: comparisons use their hash in `budget`."""
    seed: int
    axes: Axes
    budget: Budget
    """The cost of training: grids in a comparison must agree in it."""
    evaluation: Evaluation
    """The evaluation set: grids in a comparison must agree in it too."""
    scoring: dict[str, Any] = field(default_factory=dict)
    """Facts of the scoring (dtype, threshold, ...): stored, but never compared."""
    blocks_done: int = 0
    """Number of leading blocks of the evaluation set that are counted; scoring resumes after them.
    A block holds one problem of every cell."""
    chunk_blocks: int = 0
    """Number of blocks after these whose problems are being counted, the shortest first."""
    chunk_rows: int = 0
    """Number of their problems that are counted."""
    exact: Ints
    """int64: problems answered exactly."""
    total: Ints
    """int64: problems scored: `blocks_done` in every cell, and the `chunk_rows`."""
    right_sum: Floats
    """float64: sum over problems of the share of right answer tokens. Of this and the next the last
    digits depend on the precision of the scoring; `exact` does not."""
    first_wrong_sum: Ints
    """int64: sum over wrong answers of `Outcome.first_wrong`."""
    seen: Ints | None = None
    """int64: problems among `total` that training has seen; None if not known, as of grids before
    0.10.0. A longer problem than trained is never one."""
    seen_exact: Ints | None = None
    """int64: problems among `seen` answered exactly."""
    standard: "Grid | None" = None
    """For a grid of another split, the run's grid on the split EVALUATION; None if not known."""
    about: About | None = None
    """What the run recorded of its encoding; None if not known."""
    precision: str | None = None
    """What the training computed in, as in "bfloat16"; None if not known."""

    @classmethod
    def empty(cls, encoding: str, axes: Axes, **facts: Any) -> Self:
        """Return a grid without blocks."""
        exact, total, first_wrong_sum, seen, seen_exact = np.zeros((5, *shape(axes)), np.int64)
        return cls(
            encoding=encoding,
            axes=axes,
            **facts,
            exact=exact,
            total=total,
            right_sum=np.zeros(shape(axes)),
            first_wrong_sum=first_wrong_sum,
            seen=seen,
            seen_exact=seen_exact,
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a grid. Raises Failure, naming the file; Corrupt if it is damaged."""
        document = read_document(Path(path), GridDocument)
        excluded = {*CELLS, *SEEN_CELLS, "axes", "trained_digits", "budget", "evaluation"}
        facts = document.model_dump(exclude=excluded, exclude_none=True)
        cells = {
            name: np.array(getattr(document, name)).reshape(shape(document.scored_axes))
            for name in document.cells
        }
        exact, total = cells["exact"], cells["total"]
        right_share = np.nan_to_num(cells["right_share"].astype(np.float64))
        first_wrong = np.nan_to_num(cells["first_wrong"].astype(np.float64))
        return cls(
            **facts,
            axes=document.scored_axes,
            budget=document.budget,
            evaluation=document.evaluation,
            exact=exact,
            total=total,
            # Sums are multiples of a known unit, so that rounding restores them exactly.
            right_sum=np.rint(right_share * total / _SHARE_UNIT) * _SHARE_UNIT,
            first_wrong_sum=np.rint(first_wrong * (total - exact)).astype(np.int64),
            seen=cells.get("seen"),
            seen_exact=cells.get("seen_exact"),
        )

    def save(self, path: str | Path) -> None:
        """Write the grid, one row of cells per line. Raises Failure if writing fails."""
        entries = []
        for key, value in with_checksum(self.content(), GridDocument.kind).items():
            entry = json.dumps(value)
            if key in (*CELLS, *SEEN_CELLS):
                entry = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
            entries.append(f'"{key}": {entry}')
        write_text(Path(path), "{\n " + ",\n ".join(entries) + "\n}\n")

    def content(self) -> dict[str, Any]:
        """Return the file's content in plain Python types: means instead of sums, None for nan."""
        cells = {
            "exact": self.exact.tolist(),
            "total": self.total.tolist(),
            "right_share": _nullable(self.right_sum, self.total),
            "first_wrong": _nullable(self.first_wrong_sum, self.total - self.exact),
        }
        if self.seen is not None and self.seen_exact is not None:
            cells |= {"seen": self.seen.tolist(), "seen_exact": self.seen_exact.tolist()}
        names = [name for name in GridDocument.model_fields if name not in (*CELLS, *SEEN_CELLS)]
        facts: dict[str, Any] = {name: getattr(self, name) for name in names}
        facts |= {"budget": self.budget.as_dict(), "evaluation": self.evaluation.as_dict()}
        facts["axes"] = [asdict(axis) for axis in self.axes]
        if not self.settings:
            del facts["settings"]
        if not self.chunk_rows:
            del facts["chunk_blocks"], facts["chunk_rows"]
        if self.axes == digit_pairs(self.trained_digits, self.max_digits):
            del facts["axes"]
        return facts | cells

    @property
    def name(self) -> str:
        """Name as on the command line: "tape", "tape+yarn"."""
        return self.encoding + (f"+{self.extrapolation}" if self.extrapolation else "")

    @property
    def split(self) -> str:
        """Split of the problems, one of `data.bucket.SPLITS`."""
        return self.evaluation.split

    @property
    def trained_digits(self) -> int:
        """Most digits in training."""
        return next(axis.trained for axis in self.axes if axis.counts == "digits")

    @property
    def max_digits(self) -> int:
        """Most digits that are scored."""
        return next(axis.tested for axis in self.axes if axis.counts == "digits")

    @property
    def num_scored(self) -> int:
        """Number of problems that are counted."""
        return int(self.total.sum())

    @property
    def complete(self) -> bool:
        """True if every problem of the evaluation set is counted."""
        return self.blocks_done == self.evaluation.problems_per_cell

    @property
    def accuracy(self) -> Floats:
        """float64: exact match per cell, 0..1, if a block is counted."""
        return self.exact / self.total

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per cell: its run, its length on each axis, and its score.

        exact_match, right_share   right problems and right answer tokens, 0..1; nan before scoring.
                                   The second depends on the precision of the scoring
        in_distribution            whether all lengths were trained
        """
        import pandas as pd

        lengths = cell_lengths(self.axes)
        with np.errstate(invalid="ignore"):
            exact_match, right_share = self.accuracy, self.right_sum / self.total
        cells: dict[str, NDArray[Any]] = {
            **{axis.column: lengths[..., k] for k, axis in enumerate(self.axes)},
            "in_distribution": self.mask("in_distribution"),
            "exact": self.exact,
            "total": self.total,
            "exact_match": exact_match,
            "right_share": right_share,
        }
        frame = pd.DataFrame({name: values.ravel() for name, values in cells.items()})
        run = {"preset": self.preset, "pe": self.name, "seed": self.seed}
        return pd.concat([pd.DataFrame(run, frame.index), frame], axis=1)

    def mask(self, region: Region) -> Bools:
        """Return the cells of `region`: bool, of the grid's shape."""
        return region_mask(region, self.axes).copy()  # the caller's own: all grids share that one

    def mean(self, region: Region) -> float | None:
        """Return the mean of exact match over the cells of `region`, each with the same weight.

        Returns None if the region has no cell or no block is counted.
        """
        mask = self.mask(region)
        if not self.blocks_done or not mask.any():
            return None
        return fsum(self.accuracy[mask]) / int(mask.sum())

    @property
    def seen_share(self) -> float | None:
        """The share of problems in distribution that training has seen, 0..1; None if not known."""
        if self.seen is None or not self.blocks_done:
            return None
        return int(self.seen.sum()) / int(self.total[self.mask("in_distribution")].sum())

    @property
    def converged(self) -> bool | None:
        """True if the trained lengths were learned; None while no block is counted.

        Of the problems in distribution only those count that training has not seen, or all if those
        are too few to decide. On another split than EVALUATION, `standard` decides; None if that is
        not known.
        """
        value = None if self.judged is None else self.judged._learned_share()
        return None if value is None else value >= CONVERGED - SLACK

    @property
    def judged(self) -> "Grid | None":
        """The run's grid that decides whether it converged: that of the usual problems.

        None if it is not known, or if the model was not trained here.
        """
        if not self.budget.steps:
            return None
        return self if self.split == EVALUATION else self.standard

    @property
    def unseen_decide(self) -> bool:
        """Tell whether enough problems in distribution are known that training has not seen."""
        if self.seen is None or self.seen_exact is None:
            return False
        return int((self.total - self.seen)[self.mask("in_distribution")].sum()) >= LEAST_UNSEEN

    def _learned_share(self) -> float | None:
        """Return exact match on the problems in distribution that decide convergence."""
        if not self.unseen_decide:
            return self.mean("in_distribution")
        assert self.seen is not None and self.seen_exact is not None
        inside = self.mask("in_distribution")
        exact, unseen = self.exact - self.seen_exact, self.total - self.seen
        # Each problem weighs the same: some cells have hardly any that training has not seen.
        return int(exact[inside].sum()) / int(unseen[inside].sum())

    def __repr__(self) -> str:
        return f"<Grid of {self.summary()}>"

    def summary(self, evaluation_set: EvaluationSet | None = None) -> str:
        """Return one line: the means in percent, and how many problems are scored if not all."""

        def percent(region: Region) -> str:
            mean = self.mean(region)
            return "not scored" if mean is None else f"{mean:.1%}"

        longer = f"out of distribution {percent('out_of_distribution')}"
        if not self.mask("out_of_distribution").any():
            digits = f"trained and tested to {self.max_digits} digits"
            longer = f"nothing is out of distribution ({digits})"
        run = f"{self.name} seed {self.seed}{evaluation_set or EvaluationSet(self.split)}"
        if not self.complete:
            run += f", {self.blocks_done} of {self.evaluation.problems_per_cell} problems a cell"
        return (
            f"{run}: {longer}, in distribution {percent('in_distribution')}, "
            f"all {percent('all_cells')}"
        )

    def add(
        self,
        axis_lengths: Ints,
        num_correct: Ints,
        answer_tokens: Ints,
        first_wrong: Ints,
        seen: Bools | None = None,
    ) -> None:
        """Count a chunk of n scored problems: one array int[n, axes] and three arrays int[n].

        `num_correct` of `answer_tokens` are right; `first_wrong` is the index of the first wrong
        one, -1 for an exact answer. `seen` bool[n] tells which problems training has seen; without
        it the grid does not know. The order and the size of chunks do not change the sums, not
        even in the last bit. The caller must raise `blocks_done`, or `chunk_rows`.
        """
        shortest = np.array([axis.shortest for axis in self.axes])
        cells = np.ravel_multi_index(tuple((axis_lengths - shortest).T), self.total.shape)

        def summed(values: NDArray[Any] | None = None) -> NDArray[Any]:
            return np.bincount(cells, values, self.total.size).reshape(self.total.shape)

        share = np.rint(num_correct / answer_tokens / _SHARE_UNIT) * _SHARE_UNIT
        self.total += summed()
        is_exact = num_correct == answer_tokens
        self.exact += summed(is_exact).astype(np.int64)
        self.right_sum += summed(share)
        self.first_wrong_sum += summed(np.maximum(first_wrong, 0)).astype(np.int64)
        if seen is None or self.seen is None or self.seen_exact is None:
            self.seen = self.seen_exact = None
        else:
            self.seen += summed(seen).astype(np.int64)
            self.seen_exact += summed(seen & is_exact).astype(np.int64)
        assert self.total.max() <= self.evaluation.problems_per_cell, "a chunk counted twice"


def _nullable(sums: NDArray[Any], counts: Ints) -> Any:
    """Return means as nested lists, None where nothing is counted."""
    means = np.full(sums.shape, None, dtype=object)
    counted = counts > 0
    means[counted] = sums[counted] / counts[counted]
    return means.tolist()
