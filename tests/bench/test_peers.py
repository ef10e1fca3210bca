"""The peers' benchmark: the same problems, sizes and loss for all; what is missing is said.

The real packages are tried where they are installed, and slow to import.
"""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tape_arith.arith.bench import peers
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.data.rows import Rows
from tape_arith.arith.runs.build import decoder_for
from tape_arith.arith.training.batches import Batches
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.hardware import Hardware
from tape_arith.models.names import parse

CPU = Hardware("cpu", torch.float32)


def tiny(**settings: object) -> Config:
    return Options(seconds=0).config(CPU).with_settings(settings)


class Counting(nn.Module):
    """A stand-in of a peer: logits from the present token alone. Keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(19, 19)
        self.given: list[Tensor] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.given.append(tokens)
        return self.table(tokens)


STAND_IN = peers._Peer("there", "Counting", lambda package, config: Counting())


def find(package: str) -> tuple[None, str]:
    if package == "there":
        return None, "1.0"
    raise ModuleNotFoundError(f"No module named {package!r}")


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """One package that is there, and one that is not."""
    monkeypatch.setattr(peers, "_import", find)
    missing = STAND_IN._replace(package="not-there")
    monkeypatch.setattr(peers, "_PEERS", (STAND_IN, missing))


def test_what_is_not_installed_is_said_and_the_rest_measured(stand_ins: None) -> None:
    lines = {line.name: line for line in peers.measure(Options(seconds=0))}
    missing = lines["not-there Counting"]
    assert missing.value is None
    assert missing.note == "not-there is not installed (pip install not-there)"
    peer = lines["there Counting: real tokens"]
    assert peer.value and peer.value > 0
    assert "version 1.0" in peer.note and "361 parameters" in peer.note
    for name in ("ours, as the suite trains", "ours, one padded batch"):
        line = lines[f"{name} / Counting"]
        assert line.value == lines[f"{name}: real tokens"].value
        assert line.limit == peer.value and line.limit_name == "there Counting"


@pytest.mark.parametrize("step", [0, 3])
def test_all_train_on_the_problems_of_the_suite(step: int) -> None:
    config = tiny()
    rows = peers._padded_batch(config, step)
    bucket = config.bucket(0)
    problems, keys = Batches(bucket, bucket, config).problems(step)
    assert np.array_equal(rows.keys, keys)
    ends = np.cumsum(problems.lengths)
    for i, (end, length) in enumerate(zip(ends, problems.lengths, strict=True)):
        tokens = problems.tokens[end - length : end]
        assert np.array_equal(rows.inputs[i, : length - 1], tokens[:-1])
        assert np.array_equal(rows.targets[i, : length - 1], tokens[1:])
        # After them the end token, which no answer is read from, and padding.
        assert not rows.inputs[i, length:].any() and not rows.is_answer[i, length - 1 :].any()
    assert peers._real_tokens(config, step) == int((problems.lengths - 1).sum())


def test_one_padded_batch_is_the_same_training() -> None:
    """The same weights, problems and loss as the suite's groups; peers get this batch."""
    config = tiny()
    decoder = decoder_for(config, parse("rope"), seed=0)
    loss = float(peers._on_one_batch(config, CPU).train(0))  # type: ignore[arg-type]
    trainer = Trainer(decoder, config.bucket(0), config, CPU)
    assert loss == pytest.approx(float(trainer.train_step()[0]), rel=1e-5)


def test_a_peers_loss_is_that_of_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_import", find)
    config, given = tiny(), Counting()
    contender = peers._contender(
        STAND_IN._replace(build=lambda package, config: given), config, CPU
    )
    rows = peers._padded_batch(config, 0)
    table = given.table.weight.detach().clone().double().log_softmax(-1)
    expected = [
        -float(table[rows.inputs[row, t], rows.targets[row, t]])
        for row in range(len(rows.inputs))
        for t in range(rows.inputs.shape[1])
        if rows.is_answer[row, t]
    ]
    assert float(contender.train(0)) == pytest.approx(np.mean(expected), rel=1e-5)  # type: ignore[arg-type]
    assert torch.equal(given.given[0], torch.from_numpy(rows.inputs))
    for _ in range(30):
        contender.train(0)
    assert float(contender.train(0)) < np.mean(expected)  # type: ignore[arg-type]


def test_threads_are_shared_in_a_step_and_given_back() -> None:
    before, seen = torch.get_num_threads(), []
    model = Counting()

    def loss(rows: Rows) -> Tensor:
        seen.append(torch.get_num_threads())
        return model(torch.from_numpy(rows.inputs)).square().mean()

    hardware = Hardware("cpu", torch.float32, threads=2)
    peers._padded_contender("model", model, loss, tiny(), hardware, "").train(0)
    assert seen == [2] and torch.get_num_threads() == before


def installed(peer: peers._Peer) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return peers._import(peer.package)[0]
        except ImportError:
            pytest.skip(f"{peer.package} is not installed")


EACH = pytest.mark.parametrize("peer", peers._PEERS, ids=lambda peer: peer.name)


@pytest.mark.slow
@EACH
def test_a_real_peer_is_of_our_size_and_learns(peer: peers._Peer) -> None:
    installed(peer)
    config = tiny(learning_rate=0.003)
    contender = peers._contender(peer, config, CPU)
    parameters = peers._on_one_batch(config, CPU).parameters
    # x-transformers keeps a bias in the gate and value of each MLP.
    biases = 0 if peer.package == "transformers" else 2 * config.mlp_size * config.num_layers
    assert contender.parameters == parameters + biases
    losses = [float(contender.train(0)) for _ in range(20)]  # type: ignore[arg-type]
    assert losses[0] == pytest.approx(math.log(19), abs=0.5)
    assert losses[-1] < losses[0] - 0.3


@pytest.mark.slow
@EACH
def test_a_real_peer_reads_neither_padding_nor_what_comes_after(peer: peers._Peer) -> None:
    package = installed(peer)
    config = tiny(head_dim=16)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = peer.build(package, config).eval()
    tokens = torch.tensor([[5, 14, 6, 17, 11, 0, 0], [5, 14, 6, 17, 11, 7, 8]])
    with torch.no_grad():
        logits, alone, swapped = (
            getattr(output, "logits", output)
            for output in map(model, (tokens, tokens[:1, :5], tokens[:1, [2, 1, 0, 3, 4]]))
        )
    assert logits.shape == (2, 7, 19)
    torch.testing.assert_close(logits[0, :5], logits[1, :5])
    torch.testing.assert_close(alone[0], logits[0, :5])
    assert float((swapped[0, 4] - alone[0, 4]).abs().max()) > 1e-6  # order is seen
