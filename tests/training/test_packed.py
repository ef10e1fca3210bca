"""Packed end to end or padded in groups: the same gradient, the same scores.

On a CPU nothing packs, since padding costs less there than packing would; here `eager` is told to.
"""

import numpy as np
import pytest
import torch

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.runs.build import decoder_for, setting_for
from tape_arith.arith.scoring.score import score
from tape_arith.models.attention import Eager
from tape_arith.models.build import build
from tape_arith.models.names.locate import known_names
from tape_arith.models.names.parse import parse
from tests.helpers.small_training import cpu, perturbed, small, trainer
from tests.training.test_gradient import step_gradient

CONFIG = small(trained_digits=4, tested_digits=6, batch_size=24)
PACKABLE = [
    name for name in known_names("encoding") if build(name, setting_for(CONFIG)).needs.packed
]


@pytest.fixture
def packing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Eager, "packs", True)


@pytest.mark.parametrize("name", PACKABLE)
def test_the_gradient_is_that_of_padded_groups(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    padded = trainer(CONFIG, name)
    perturbed(padded.decoder)
    loss, norm, gradients = step_gradient(padded)
    assert not padded.decoder.packs
    monkeypatch.setattr(Eager, "packs", True)
    packed = trainer(CONFIG, name)
    perturbed(packed.decoder)
    packed_loss, packed_norm, packed_gradients = step_gradient(packed)
    assert packed.decoder.packs
    assert packed_loss == pytest.approx(loss, rel=1e-5)
    assert packed_norm == pytest.approx(norm, rel=1e-4)
    for key, gradient in gradients.items():
        torch.testing.assert_close(packed_gradients[key], gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.usefixtures("packing")
def test_a_step_is_one_group_of_a_fixed_shape() -> None:
    one = trainer(CONFIG)
    shapes = set()
    for step in range(20):
        (rows,) = one.groups(*one.batches.problems(step))
        assert rows.starts is not None
        shapes.add((rows.inputs.shape, rows.starts.shape, rows.longest))
    assert len(shapes) == 1


@pytest.mark.parametrize("name", PACKABLE)
def test_scores_are_those_of_padded_groups(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = perturbed(decoder_for(CONFIG, parse(name), 0)).eval()
    bucket = Bucket("addition", 6, 0, "evaluation")
    problems, keys = bucket.problems(0, 200), bucket.keys(0, 200)
    padded = score(decoder, problems, keys, cpu())
    monkeypatch.setattr(Eager, "packs", True)
    packed = score(decoder, problems, keys, cpu())
    assert decoder.packs
    for field in ("exact", "num_correct", "answer_tokens", "first_wrong"):
        assert np.array_equal(getattr(packed, field), getattr(padded, field)), field
    np.testing.assert_allclose(packed.margin, padded.margin, rtol=1e-3, atol=1e-5)
    # Some digits are right by chance: the comparison is not one of zeros.
    assert 0 < padded.num_correct.sum() < padded.answer_tokens.sum()


def test_an_encoding_of_dense_biases_is_never_packed(packing: None) -> None:
    assert not trainer(CONFIG, "fire").decoder.packs
