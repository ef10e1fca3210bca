"""D of weights and of inner products against loops, and what must and must not be stable."""

from functools import cache

import numpy as np
import pytest
import torch

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.studies.inputs import Sample
from tape_arith.arith.studies.stability import SHIFTS, Deviation, deviations
from tape_arith.models.backends.sdpa import SDPA
from tests.helpers.studied_runs import (
    ALL,
    CONFIG,
    KEYS,
    PROBLEMS,
    entries,
    one_by_one,
    rows_of,
    varied,
)

pytestmark = pytest.mark.usefixtures("one_thread")
BOS = 2
SAMPLE = Sample(PROBLEMS, KEYS, ALL)
CONTROL = "tape:form=non-equivariant"


@cache
def measured(name: str, dtype: torch.dtype = torch.float64) -> dict[tuple[str, str], Deviation]:
    made = deviations(varied(name).to(dtype), SAMPLE, "cpu")
    return {(deviation.change, deviation.measure): deviation for deviation in made}


def values(name: str, change: str, measure: str, dtype: torch.dtype = torch.float64) -> np.ndarray:
    deviation = measured(name, dtype)[change, measure]
    assert deviation.values is not None and deviation.why is None
    return np.array(deviation.values)


# ---- against loops -----------------------------------------------------------------------------


def naive(name: str, offset: int, leading: int) -> dict[str, np.ndarray]:
    """Every entry of every problem, one after the other, as the definition says."""
    decoder, layers, heads = varied(name), CONFIG.num_layers, CONFIG.num_heads
    measures = ("attention", "attention, renormalised", "inner products")
    over = {measure: np.zeros(layers) for measure in measures}
    under = {measure: np.zeros(layers) for measure in measures}
    for tokens, bound, key in zip(rows_of(PROBLEMS), PROBLEMS.final_lengths, KEYS, strict=True):
        plain, states = one_by_one(decoder, tokens, int(bound), int(key))
        changed, moved = one_by_one(
            decoder, [BOS] * leading + tokens, int(bound) + leading, int(key), offset
        )
        for layer in range(layers):
            e, other = entries(states[layer]), entries(moved[layer])
            for h in range(heads):
                for t in range(len(tokens)):
                    late = t + leading
                    rest = sum(changed[layer][h, late, leading : late + 1])
                    for i in range(t + 1):
                        a = plain[layer][h, t, i]
                        b = changed[layer][h, late, i + leading]
                        p = float((e[t][h] * e[i][h]).sum())
                        q = float((other[late][h] * other[i + leading][h]).sum())
                        for measure, one, two in zip(
                            measures, (a, a, p), (b, b / rest if rest else 0, q), strict=True
                        ):
                            over[measure][layer] += abs(one - two)
                            under[measure][layer] += abs(one)
    return {measure: over[measure] / under[measure] for measure in measures}


@pytest.mark.parametrize("name", ["rope", "rope+yarn", "tape", CONTROL])
@pytest.mark.parametrize("change", SHIFTS)
def test_agrees_with_loops(name: str, change: str) -> None:
    expected = naive(name, *SHIFTS[change])
    for (shift, measure), deviation in measured(name).items():
        if shift == change:
            assert deviation.values is not None
            np.testing.assert_allclose(deviation.values, expected[measure], rtol=1e-9, atol=1e-12)


# ---- what the papers claim ---------------------------------------------------------------------


@pytest.mark.parametrize("change", ["start 3", "start 1000"])
@pytest.mark.parametrize("measure", ["attention", "inner products"])
@pytest.mark.parametrize("name", ["rope", "tape", "tape-heads", "xpos", "pope"])
def test_a_shift_leaves_what_is_equivariant(name: str, measure: str, change: str) -> None:
    """But for rounding: it falls with the type."""
    assert values(name, change, measure).max() < 1e-9
    assert values(name, change, measure, torch.float32).max() < 1e-2
    # Rounding there is, so that this is no comparison of a thing with itself.
    assert values(name, change, measure).max() > 0


@pytest.mark.parametrize("change", ["start 3", "start 1000"])
def test_a_shift_moves_what_is_not_equivariant(change: str) -> None:
    assert values(CONTROL, change, "attention")[1:].min() > 0.1
    assert values(CONTROL, change, "inner products")[-1] > 0.1
    # Of the first state, which is rope's, nothing is rewritten yet.
    assert values(CONTROL, change, "attention")[0] < 1e-9


def test_leading_tokens_leave_the_first_layer_of_rope() -> None:
    renormalised = values("rope", "BOS", "attention, renormalised")
    assert renormalised[0] < 1e-14 and renormalised[1:].min() > 1e-3
    # Raw, the leading tokens have taken a share of every row.
    assert values("rope", "BOS", "attention")[0] > 0.05
    # And rope's states are rope's, wherever they stand.
    assert values("rope", "BOS", "inner products").max() < 1e-12
    assert values("tape", "BOS", "inner products")[1:].min() > 1e-3


def test_who_has_no_positional_state() -> None:
    deviation = measured("nope")["start 3", "inner products"]
    assert (deviation.values, deviation.why) == (None, "no positional state")
    assert values("nope", "start 1000", "attention").tolist() == [0.0] * CONFIG.num_layers


def test_an_index_that_is_not_there() -> None:
    """A table of as many rows as the longest tested sequence ends before 1000."""
    for measure in ("attention", "inner products"):
        deviation = measured("learned")["start 1000", measure]
        assert deviation.values is None and "past the end of a learned table" in str(deviation.why)
    short = ALL[PROBLEMS.lengths <= 16]
    made = deviations(varied("learned"), Sample(PROBLEMS, KEYS, short), "cpu")
    start, bos = (d.values for d in made if d.change != "start 1000" and d.measure == "attention")
    assert start is not None and min(start) > 1e-2 and bos is not None and min(bos) > 1e-2


# ---- what cannot be measured -------------------------------------------------------------------


def test_a_backend_that_shows_nothing() -> None:
    decoder = varied("rope")
    decoder.attend_with(SDPA())
    with pytest.raises(UsageError, match="never shows its weights"):
        deviations(decoder, SAMPLE, "cpu")


def test_weights_that_are_not_finite() -> None:
    decoder = varied("rope")
    with torch.no_grad():
        decoder.embedding.weight[5] = float("nan")
    with pytest.raises(Failure, match="layer 1 are not finite"):
        deviations(decoder, SAMPLE, "cpu")
