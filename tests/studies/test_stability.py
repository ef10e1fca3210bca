"""D of weights and of inner products against loops, what must and must not be stable, and the table
and figure of made-up numbers."""

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tape_arith.arith.errors import Failure
from tape_arith.arith.studies.inputs import Sample
from tape_arith.arith.studies.stability import SHIFTS, deviations, figures, to_markdown
from tape_arith.arith.tasks.task import take
from tape_arith.models.decoder import Decoder
from tape_arith.models.sequences import Sequences
from tests.helpers.figures import assert_nothing_is_cut_off, words
from tests.helpers.studied_runs import (
    CONFIG,
    SAMPLE,
    made_study,
    one_by_one,
    rows_of,
    run_facts,
    varied,
)

pytestmark = pytest.mark.usefixtures("one_thread")
BOS = 2
CONTROL = "tape:form=non-equivariant"


@cache
def measured(name: str, dtype: torch.dtype = torch.float64) -> pd.DataFrame:
    return deviations(varied(name).to(dtype), SAMPLE, "cpu")


def values(
    name: str, change: str, measure: str, dtype: torch.dtype = torch.float64
) -> np.ndarray[Any, Any]:
    rows = measured(name, dtype)
    return rows[(rows.change == change) & (rows.measure == measure)].value.to_numpy()


def test_smaller_batches_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, forward, sizes = measured("tape"), Decoder.forward, list[int]()

    def limited(self: Decoder, seqs: Sequences, *rest: Any) -> torch.Tensor:
        if len(seqs.tokens) > 1:
            raise MemoryError
        sizes.append(len(seqs.tokens))
        return forward(self, seqs, *rest)

    monkeypatch.setattr(Decoder, "forward", limited)
    rows = deviations(varied("tape").double(), SAMPLE, "cpu")
    assert len(sizes) == 2 * len(SHIFTS) * len(SAMPLE.keys)
    pd.testing.assert_frame_equal(rows, expected)


# ---- against loops -----------------------------------------------------------------------------


def naive(name: str, offset: int, leading: int) -> dict[str, np.ndarray[Any, Any]]:
    """Sum over every entry of every problem, one after the other, as the definition says."""
    decoder, layers, heads = varied(name), CONFIG.num_layers, CONFIG.num_heads
    measures = ("attention", "attention, renormalised", "inner products")
    over = {measure: np.zeros(layers) for measure in measures}
    under = {measure: np.zeros(layers) for measure in measures}
    problems = SAMPLE.problems
    for tokens, bound, key in zip(
        rows_of(problems), problems.final_lengths, SAMPLE.keys, strict=True
    ):
        plain, states = one_by_one(decoder, tokens, int(bound), int(key))
        changed, moved = one_by_one(
            decoder, [BOS] * leading + tokens, int(bound) + leading, int(key), offset
        )
        for layer in range(layers):
            # e of a state of rope or tape: each token's numbers of every head, [T, H, 4F].
            e, e_moved = (
                torch.cat(tuple(state[layer]), -1)[0].numpy() for state in (states, moved)
            )
            for h in range(heads):
                for t in range(len(tokens)):
                    late = t + leading
                    rest = sum(changed[layer][h, late, leading : late + 1])
                    for i in range(t + 1):
                        a = plain[layer][h, t, i]
                        b = changed[layer][h, late, i + leading]
                        p = float((e[t][h] * e[i][h]).sum())
                        q = float((e_moved[late][h] * e_moved[i + leading][h]).sum())
                        for measure, one, two in zip(
                            measures, (a, a, p), (b, b / rest if rest else 0, q), strict=True
                        ):
                            over[measure][layer] += abs(one - two)
                            under[measure][layer] += abs(one)
    return {measure: over[measure] / under[measure] for measure in measures}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *[("rope", "BOS"), ("rope+yarn", "start 3"), (CONTROL, "start 1000")],
        *[("tape", change) for change in SHIFTS],
    ],
)
def test_agrees_with_loops(name: str, change: str) -> None:
    expected = naive(name, *SHIFTS[change])
    rows = measured(name)
    for measure, group in rows[rows.change == change].groupby("measure"):
        assert group.layer.tolist() == [1, 2, 3]
        np.testing.assert_allclose(group.value, expected[str(measure)], rtol=1e-9, atol=1e-12)


# ---- claims of the papers -----------------------------------------------------------------------


@pytest.mark.parametrize("change", ["start 3", "start 1000"])
def test_a_shift_leaves_what_is_equivariant_and_moves_what_is_not(change: str) -> None:
    for name, measure in product(
        ["rope", "tape", "tape-heads", "xpos", "pope"], ["attention", "inner products"]
    ):
        # Rounding there is, so that this is no comparison of a thing with itself.
        assert 0 < values(name, change, measure).max() < 1e-9, (name, measure)
    assert values("tape", change, "attention", torch.float32).max() < 1e-2
    assert values(CONTROL, change, "attention")[1:].min() > 0.1
    assert values(CONTROL, change, "inner products")[-1] > 0.1
    # Nothing of the first state, which is rope's, is rewritten yet.
    assert values(CONTROL, change, "attention")[0] < 1e-9


def test_leading_tokens_leave_the_first_layer_of_rope() -> None:
    renormalised = values("rope", "BOS", "attention, renormalised")
    assert renormalised[0] < 1e-14 and renormalised[1:].min() > 1e-3
    # Raw, the leading tokens have taken a share of every row.
    assert values("rope", "BOS", "attention")[0] > 0.05
    # And rope's states are rope's, wherever they stand.
    assert values("rope", "BOS", "inner products").max() < 1e-12
    assert values("tape", "BOS", "inner products")[1:].min() > 1e-3


# ---- missing measures --------------------------------------------------------------------------


def test_missing_numbers_have_their_reason() -> None:
    rows = measured("nope")
    products = rows[rows.measure == "inner products"]
    assert products.why.nunique() == 1 and products.why.all() and products.value.isna().all()
    assert values("nope", "start 1000", "attention").tolist() == [0.0] * CONFIG.num_layers
    # A table of as many rows as the longest tested sequence ends before 1000.
    rows = measured("learned")
    late = rows[rows.change == "start 1000"]
    assert late.measure.tolist() == ["attention", "inner products"] and late.value.isna().all()
    assert late.why.str.contains("learned table").all()
    short = np.flatnonzero(SAMPLE.problems.lengths <= 16)
    sample = Sample(take(SAMPLE.problems, short), SAMPLE.keys[short])
    rows = deviations(varied("learned"), sample, "cpu")
    for change in ("start 3", "BOS"):
        weights = rows[(rows.change == change) & (rows.measure == "attention")]
        assert len(weights) == CONFIG.num_layers and weights.value.min() > 1e-2


def test_random_positions_that_just_suffice_leave_none_for_more() -> None:
    bucket = CONFIG.evaluation_bucket()
    longest = Sample(bucket.problems(0, bucket.num_cells), bucket.keys(0, bucket.num_cells))
    rows = deviations(varied(f"rand-rope:l_max={bucket.longest}"), longest, "cpu")
    leading = rows[rows.change == "BOS"]
    assert leading.value.isna().all() and leading.why.str.contains("l_max").all()


def test_weights_that_are_nan_are_refused() -> None:
    decoder = varied("rope")
    with torch.no_grad():
        decoder.embedding.weight[5] = float("nan")
    with pytest.raises(Failure, match="layer 1"):
        deviations(decoder, SAMPLE, "cpu")


# ---- table and figure --------------------------------------------------------------------------


def run(
    encoding: str, shift: float, seed: int = 0, bos: int = 0, precision: str = "float32"
) -> pd.DataFrame:
    """Return a run whose attention changes by `shift` under a shift and by 0.5 behind [BOS]."""
    rows: list[tuple[Any, ...]] = []
    for change in SHIFTS:
        for measure in ["attention", "attention, renormalised", "inner products"]:
            if measure == "attention, renormalised" and change != "BOS":
                continue
            if measure == "inner products" and encoding in ("fire", "nope"):
                rows.append((precision, change, measure, "no positional state", None, None))
                continue
            size = 0.5 if change == "BOS" else shift
            rows += [(precision, change, measure, None, n, n * size) for n in (1, 2, 3)]
    names = ["precision", "change", "measure", "why", "layer", "value"]
    frame = pd.DataFrame(rows, columns=names).assign(**run_facts(encoding, seed, bos))
    return frame.astype({"layer": "Int64", "value": "float64"})


def test_markdown() -> None:
    text = to_markdown(
        made_study(
            "stability",
            *(run("rope", 1e-7), run("rope", 3e-7, seed=1), run("rope", 1e-7, bos=3)),
            *(run("fire", 0.0123), run("nope", 0.0)),
        )
    )
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    rows = {(line[0], line[3], line[4]): line for line in lines}
    shift = "indices start at 3", "attention weights"
    # Student t of two seeds: 12.706 x 1e-7.
    assert (
        rows["RoPE", *shift][5].split() == ["2e-07", "±", "1.27e-06", "r"]
        and rows["RoPE", *shift][1] == "0, 1"
    )
    assert next(cells for (name, *_), cells in rows.items() if "[BOS]" in name)[1] == "0"
    assert rows["FIRE", *shift][6] == "0.0246"  # no mark
    assert rows["NoPE", *shift][5] == "0"
    products = rows["FIRE", "indices start at 3", "inner products of positions"]
    assert products[5:] == ["none"] * 3
    assert ": FIRE, NoPE." in text


def test_figure() -> None:
    seeds = [run("tape", value, bos=3, seed=n) for n, value in enumerate((0.1, 0.2, 0.6))]
    coarse = run("tape", 0.3, bos=3)
    figure = figures(made_study("stability", *seeds, run("nope", 0.0)))[""]
    assert len(figure.axes) == 6 and "from rounding" in words(figure)
    shift, _, bos = figure.axes[:3]
    *thin, mean, nope = shift.get_lines()
    np.testing.assert_allclose(np.asarray(mean.get_ydata()), [0.3, 0.6, 0.9])
    assert len(thin) == 3 and not np.any(np.asarray(nope.get_ydata()))
    # Behind [BOS] raw weights are drawn as their mean alone.
    assert len(bos.get_lines()) == 3 + 2 + 2
    both = made_study("stability", coarse, run("tape", 1e-15, bos=3, precision="float64"))
    figure = figures(both)[""]  # the finer precision
    line = np.asarray(figure.axes[0].get_lines()[0].get_ydata())
    np.testing.assert_allclose(line, [1e-15, 2e-15, 3e-15])
    assert "in float64" in words(figure)
    assert_nothing_is_cut_off(figure)
