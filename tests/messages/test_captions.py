"""What figures and tables say of themselves below, whole, for runs of made-up numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tape_arith.arith.compare import captions
from tape_arith.arith.compare.curves import Curves, curve_rows
from tape_arith.arith.compare.leaderboard import board_of, describe_order
from tape_arith.arith.data.bucket import CARRY
from tape_arith.arith.figures.curves import footnote as curves_footnote
from tape_arith.arith.grids.axes import digit_pairs
from tape_arith.arith.grids.panel import Panel, panels_of
from tests.helpers.made_grids import BITS, DEPTHS, LISTS, drawn, flat
from tests.helpers.messages import is_of


def panel(name: str, seeds: Sequence[int] = (0, 1, 2), **more: Any) -> Panel:
    return Panel.of(flat(name, seed, **more) for seed in seeds)


def board(*panels: Panel, **more: Any) -> str:
    """Return the notes of a leaderboard, one line."""
    return " ".join(board_of(panels, {}, **more).notes())


def curves(*names: str, steps: int = 3, scored: bool = True, state: str = "") -> str:
    """Return the footnote of curves of runs, the last of which has `steps` lines of metrics."""
    seeds: dict[str, list[int]] = {}
    metrics = []
    for name in names:
        seeds.setdefault(name, []).append(len(seeds.get(name, [])))
        last = steps if name == names[-1] else 3
        lines: list[dict[str, Any]] = [
            {"step": 100 * step, "loss": 1.0, "exact_match": 0.5} for step in range(1, last + 1)
        ]
        for line in lines if scored else ():
            line["small_grid"] = {"in_distribution": 1.0, "out_of_distribution": 0.2}
            line["small_grid"]["by_length"] = {"1": 1.0}
        for line in lines if state else ():
            line["state"] = {state: [1.0, 2.0]}
        metrics.append((name, seeds[name][-1], lines))
    rows, axes = curve_rows(metrics), digit_pairs(8, 16)
    return curves_footnote(Curves(seeds, "mini", {"steps": 300}, "addition", 8, 16, rows, axes))


CAPTIONS: dict[str, tuple[Callable[[], str], str]] = {
    "several seeds": (
        lambda: captions.footnote([panel("fire"), panel("tape", [0, 1]), panel("rope")]),
        "Task addition, trained to 4 digits and tested to 8 (preset mini), 100 problems a cell, "
        "evaluation set 3f2a91bc, seeds 0, 1, 2 (tape: 0, 1). ± is the 95 % interval: Student t "
        "over seeds. Cells are means over seeds; in a mean every cell weighs the same. Training "
        "has seen 0.0 % of the problems in distribution.",
    ),
    "one seed, other settings, not converged": (
        lambda: captions.footnote([panel("fire", [0], inside=90, settings={"steps": 2000})]),
        "Task addition, trained to 4 digits and tested to 8 (preset mini with steps=2,000), 100 "
        "problems a cell, evaluation set 3f2a91bc, seed 0. ± is the 95 % interval: over "
        "problems, not over seeds (one seed). In a mean every cell weighs the same. Training "
        "has seen 0.0 % of the problems in distribution. Not converged: below 99 % in "
        "distribution, of what training has not seen.",
    ),
    "hard problems": (
        lambda: captions.footnote([panel("fire", [0], evaluation={"split": CARRY})]),
        "Task addition, hard problems: long carry chains, trained to 4 digits and tested to 8 "
        "(preset mini), 100 problems a cell, evaluation set 3f2a91bc, seed 0. ± is the 95 % "
        "interval: over problems, not over seeds (one seed). In a mean every cell weighs the "
        "same.",
    ),
    "numbers and digits": (
        lambda: captions.footnote(panels_of([drawn("rope", 0, LISTS)])),
        "Task sort, trained to 3 numbers of 4 digits and tested to 5 numbers of 8 digits "
        "(preset mini), 100 problems a cell, evaluation set 3f2a91bc, seed 0. ± is the 95 % "
        "interval: over problems, not over seeds (one seed). In a mean every cell weighs the "
        "same. Training has seen 0.0 % of the problems in distribution.",
    ),
    "depths": (
        lambda: captions.footnote(panels_of([drawn("rope", 0, DEPTHS)])),
        "Task passkey:depths=5, trained to 4 digits and tested to 8, at 5 depths (preset mini), "
        "100 problems a cell (a guess is right in 0.1 %), evaluation set 3f2a91bc, seed 0. ± is "
        "the 95 % interval: over problems, not over seeds (one seed). In a mean every cell "
        "weighs the same. Training has seen 0.0 % of the problems in distribution.",
    ),
    "bits": (
        lambda: captions.footnote(panels_of([drawn("rope", 0, BITS)])),
        "Task parity, trained to 4 bits and tested to 8 (preset mini), 100 problems a length (a "
        "guess is right in 50 %), evaluation set 3f2a91bc, seed 0. ± is the 95 % interval: over "
        "problems, not over seeds (one seed). In a mean every length weighs the same. Training "
        "has seen 0.0 % of the problems in distribution.",
    ),
    "an order": (
        lambda: describe_order([panel("rope"), panel("fire", inside=90)]),
        "order: by mean out of distribution, then not ranked",
    ),
    "a leaderboard": (
        lambda: board(panel("fire", outside=30), panel("rope"), panel("tape")),
        "Task addition, trained to 4 digits and tested to 8 (preset mini), 100 problems a cell, "
        "evaluation set 3f2a91bc, seeds 0, 1, 2. ± is the 95 % interval: Student t over seeds. "
        "Cells are means over seeds; in a mean every cell weighs the same. Training has seen "
        "0.0 % of the problems in distribution. The order is that of the mean out of "
        "distribution: where intervals overlap widely it says little, and of rows with one seed "
        "nothing is known beyond that run. Equal means share a rank. 5 digits: exact match "
        "where the longer operand has 5, 1 more than trained. 6 digits: exact match where the "
        "longer operand has 6, 2 more than trained. Right tokens: the share of right answer "
        "tokens out of distribution, each after the right ones before it; unlike exact match it "
        "is not scored again near a tie. Longest solved, at 90 %, 99 %, 10 %: the largest length L "
        "such that of the problems whose longer operand has l digits that share is exact, for "
        "each l up to L (mean over cells and seeds; 8 is the longest tested). vs rope, vs tape: "
        "no test was possible; --csv says why, encoding by encoding. Vs best: the same "
        "difference from the first of the section with two seeds, which the results themselves "
        "chose, so that it is not tested. Last states: out of distribution on the small grid of "
        "training, highest minus lowest of a run's last saved states (five at most, what it "
        "learns meanwhile included), in percentage points, mean over seeds. Training: median "
        "over seeds of the time it took where it ran. What seeds can show: seeds differ by a "
        "standard deviation of 0.0 points (median of the 3 ranked encodings above 5 %), so one "
        "t test at 5 % finds a true difference in 80 of 100 cases if it is 0.0 points with 3 "
        "seeds, 0.0 points with 5 seeds or 0.0 points with 10 seeds; a correction for many "
        "tests needs more.",
    ),
    "curves of two seeds": (
        lambda: curves("rope", "rope", "tape", state="norm"),
        "Task addition, trained to 8 digits (preset mini with steps=300), seeds 0, 1 (TAPE: 0). "
        "Lines: means over seeds; bands: from the lowest to the highest seed. A line without a "
        "band is one run. In distribution: held-out problems; out of distribution: a small grid "
        "to 16 digits, a few problems for each pair of lengths, on a scale to 20 %. e: means "
        "over held-out problems; a rotation's norm is 1.41.",
    ),
    "curves of one seed": (
        lambda: curves("tape"),
        "Task addition, trained to 8 digits (preset mini with steps=300), seed 0. One run each: "
        "no band says how much seeds differ. In distribution: held-out problems; out of "
        "distribution: a small grid to 16 digits, a few problems for each pair of lengths, on a "
        "scale to 20 %.",
    ),
    "curves so far": (
        lambda: curves("rope", "rope", "tape", steps=2),
        "Task addition, trained to 8 digits (preset mini with steps=300), seeds 0, 1 (TAPE: 0). "
        "Lines: means over seeds; bands: from the lowest to the highest seed. A line without a "
        "band is one run. In distribution: held-out problems; out of distribution: a small grid "
        "to 16 digits, a few problems for each pair of lengths, on a scale to 20 %. So far: "
        "TAPE to 200 steps.",
    ),
    "curves of nothing scored": (
        lambda: curves("rope", scored=False),
        "Task addition, trained to 8 digits (preset mini with steps=300), seed 0. One run each: "
        "no band says how much seeds differ. In distribution: held-out problems; out of "
        "distribution: a small grid to 16 digits, a few problems for each pair of lengths (not "
        "scored: RoPE).",
    ),
}


@pytest.mark.parametrize("name", CAPTIONS)
def test_what_a_reader_is_told(name: str) -> None:
    caption, sentences = CAPTIONS[name]
    text = caption().replace("\N{NO-BREAK SPACE}", " ")
    assert is_of(text, sentences), text


def test_columns_of_a_haystack_are_of_its_digits_at_all_depths() -> None:
    notes = board(*panels_of([drawn("rope", 0, DEPTHS)]))
    assert "5 digits: exact match where the problem has 5, 1 more than trained." in notes
    assert "largest length L such that of the problems of l digits that share is exact" in notes
