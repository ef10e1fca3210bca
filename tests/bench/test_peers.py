"""The peers' benchmark: the same problems, sizes and loss for all; what is missing is said.

The real packages are tried where they are installed, and slow to import.
"""

import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tape_arith.arith.bench import peers
from tape_arith.arith.bench.measure import Options
from tape_arith.arith.data.rows import Rows
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.config import Config
from tape_arith.arith.training.batches import Batches
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.hardware import Hardware
from tape_arith.models.runner import Runner

CPU = Hardware("cpu", torch.float32)


def tiny(**settings: object) -> Config:
    return Options(seconds=0).config(CPU).with_settings(settings)


def find(package: str) -> tuple[None, str]:
    if package == "there":
        return None, "1.0"
    raise ModuleNotFoundError(f"No module named {package!r}")


#: A stand-in: logits from the present token alone.
STAND_IN = peers._Peer("there", "Table", lambda package, config: nn.Embedding(19, 19))


def test_what_is_not_installed_is_said_and_the_rest_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "_import", find)
    monkeypatch.setattr(peers, "_PEERS", (STAND_IN, STAND_IN._replace(package="not-there")))
    lines = {line.name: line for line in peers.measure(Options(seconds=0))}
    missing = lines["not-there Table"]
    assert missing.value is None
    assert "install not-there" in missing.note
    peer = lines["there Table: real tokens"]
    assert peer.value and peer.value > 0
    assert "version 1.0" in peer.note and "361 parameters" in peer.note
    for name in ("ours, as the suite trains", "ours, one padded batch"):
        line = lines[f"{name} / Table"]
        assert line.value == lines[f"{name}: real tokens"].value
        assert line.limit == peer.value and line.limit_name == "there Table"


@pytest.mark.parametrize("setting", [{"norm": "post"}, {"loops": "2"}, {"attention_scale": "log"}])
def test_another_decoder_than_theirs_is_not_compared(setting: dict[str, str]) -> None:
    (line,) = peers.measure(Options(seconds=0, settings=setting))
    assert line.value is None and "norm, loops and attention_scale" in line.note


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
    trainer = Trainer(Runner(decoder, CPU), config.bucket(0), config)
    assert loss == pytest.approx(float(trainer.train_step()[0]), rel=1e-5)


def test_a_peers_loss_is_that_of_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_import", find)
    config, given = tiny(), nn.Embedding(19, 19)
    contender = peers._contender(
        STAND_IN._replace(build=lambda package, config: given), config, CPU
    )
    rows = peers._padded_batch(config, 0)
    table = given.weight.detach().clone().double().log_softmax(-1)
    expected = [
        -float(table[rows.inputs[row, t], rows.targets[row, t]])
        for row in range(len(rows.inputs))
        for t in range(rows.inputs.shape[1])
        if rows.is_answer[row, t]
    ]
    assert float(contender.train(0)) == pytest.approx(np.mean(expected), rel=1e-5)  # type: ignore[arg-type]
    for _ in range(30):
        contender.train(0)
    assert float(contender.train(0)) < np.mean(expected)  # type: ignore[arg-type]


def test_threads_are_shared_in_a_step_and_given_back() -> None:
    before, seen = torch.get_num_threads(), []
    model = nn.Embedding(19, 19)

    def loss(rows: Rows) -> Tensor:
        seen.append(torch.get_num_threads())
        return model(torch.from_numpy(rows.inputs)).square().mean()

    hardware = Hardware("cpu", torch.float32, threads=2)
    peers._padded_contender("model", model, loss, tiny(), hardware, "").train(0)
    assert seen == [2] and torch.get_num_threads() == before


@pytest.mark.slow
@pytest.mark.parametrize("peer", peers._PEERS, ids=lambda peer: peer.name)
def test_a_real_peer_is_of_our_size_and_learns(peer: peers._Peer) -> None:
    if find_spec(peer.package.replace("-", "_")) is None:
        pytest.skip(f"{peer.package} is not installed")
    config = tiny(learning_rate=0.003)
    contender = peers._contender(peer, config, CPU)
    parameters = peers._on_one_batch(config, CPU).parameters
    # x-transformers keeps a bias in the gate and value of each MLP.
    biases = 0 if peer.package == "transformers" else 2 * config.mlp_size * config.num_layers
    assert contender.parameters == parameters + biases
    losses = [float(contender.train(0)) for _ in range(20)]  # type: ignore[arg-type]
    assert losses[0] == pytest.approx(math.log(19), abs=0.5)
    assert losses[-1] < losses[0] - 0.3
