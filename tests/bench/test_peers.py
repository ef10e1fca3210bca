"""The peers' benchmark: the same problems, sizes and loss for all; what is missing is said.

The real packages are tried where they are installed, and slow to import.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tape_arith.arith.bench import peer_models, peers
from tape_arith.arith.bench.measure import Measurement, Options, Timing
from tape_arith.arith.bench.sizes import TINY
from tape_arith.arith.data.rows import Rows
from tape_arith.arith.runs.presets import load_preset
from tape_arith.arith.training.config import Config
from tape_arith.models.hardware import Hardware

CPU = Hardware("cpu", torch.float32)
QUICK = Options(quick=True)


def tiny(**settings: object) -> Config:
    chosen = {**TINY, **settings}
    return load_preset("mini").with_settings({key: str(value) for key, value in chosen.items()})


class Counting(nn.Module):
    """A stand-in of a peer: logits from the present token alone. Keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(19, 19)
        self.given: list[Tensor] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.given.append(tokens)
        return self.table(tokens)


STAND_IN = peer_models.Peer(
    "there",
    "Counting",
    lambda package, config: Counting(),
    lambda model, tokens, mask: model(tokens),
)


def find(package: str) -> tuple[None, str]:
    if package == "there":
        return None, "1.0"
    raise ModuleNotFoundError(f"No module named {package!r}")


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """One package that is there, in two settings, and one that is not."""

    monkeypatch.setattr(peers, "found", find)
    missing = STAND_IN._replace(package="not-there")
    both = (STAND_IN, STAND_IN._replace(as_it_comes=True), missing)
    monkeypatch.setattr(peers, "PEERS", both)


def test_what_is_not_installed_is_said_and_the_rest_measured(stand_ins: None) -> None:
    lines = {line.name: line for line in peers.measure(QUICK)}
    missing = lines["not-there Counting"]
    assert missing.value is None
    assert missing.note == "not-there is not installed (pip install not-there)"
    for name in ("there Counting", "there Counting, as it comes", "ours, one padded batch"):
        assert (lines[f"{name}: real tokens"].value or 0) > 0
    assert "float32" in lines["there Counting, as it comes: real tokens"].note
    assert "version 1.0" in lines["there Counting: real tokens"].note


def test_ours_beside_the_peers(stand_ins: None) -> None:
    lines: dict[str, Measurement] = {line.name: line for line in peers.measure(QUICK)}
    for ours in ("ours, as the suite trains", "ours, one padded batch"):
        for theirs in ("Counting", "Counting, as it comes"):
            line = lines[f"{ours} / {theirs}"]
            assert line.value == lines[f"{ours}: real tokens"].value
            assert line.limit == lines[f"there {theirs}: real tokens"].value
            assert line.limit_name == f"there {theirs}"
    parameters = lines["there Counting: parameters"]
    assert parameters.value == 19 * 19
    assert parameters.note == f"{19 * 19 - int(parameters.limit or 0):+,}"


def test_without_any_peer_ours_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PEERS", ())
    names = [line.name for line in peers.measure(QUICK)]
    assert names == [
        "ours, as the suite trains: real tokens",
        "ours, one padded batch: real tokens",
    ]


@pytest.mark.parametrize("step", [0, 3])
def test_all_train_on_the_problems_of_the_suite(step: int) -> None:
    config = tiny()
    rows = peers.padded(config, step)
    problems, keys = trainer_of(config).batch(step)
    assert np.array_equal(rows.keys, keys)
    ends = np.cumsum(problems.lengths)
    for i, (end, length) in enumerate(zip(ends, problems.lengths, strict=True)):
        tokens = problems.tokens[end - length : end]
        assert np.array_equal(rows.inputs[i, : length - 1], tokens[:-1])
        assert np.array_equal(rows.targets[i, : length - 1], tokens[1:])
        # After them the end token, which no answer is read from, and padding.
        assert not rows.inputs[i, length:].any() and not rows.is_answer[i, length - 1 :].any()
    assert peers.real_tokens(config, step) == int((problems.lengths - 1).sum())


def test_tokens_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step's real tokens over its own time."""
    config = tiny()
    steps: list[int] = []
    contender = peers.Contender("one", 1, steps.append, "")

    def timed(trainings: dict[str, Callable[[int], None]], **_: object) -> dict[str, list[float]]:
        trainings["one"](7)
        return {"one": [0.5, 2.0]}

    monkeypatch.setattr(peers, "steps_in_turn", timed)
    rate = peers.speeds([contender], config, CPU, QUICK)["one"]
    assert steps == [0, 7]  # the first warms up
    expected = peers.real_tokens(config, 0) / 0.5, peers.real_tokens(config, 1) / 2.0
    assert rate.median == pytest.approx(sum(expected) / 2) and rate.repeats == 2


def trainer_of(config: Config) -> Any:
    """The trainer inside the contender that trains as the suite does."""
    train: Any = peers.as_the_suite_trains(config, CPU).train
    return train.__self__.trainer


def test_one_padded_batch_is_the_same_training() -> None:
    """The same weights, problems and loss as the suite's groups; peers get this batch."""
    config = tiny()
    losses = [float(peers.on_one_batch(config, CPU).train(0))]  # type: ignore[arg-type]
    losses.append(float(trainer_of(config).train_step()[0]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_peers_loss_is_that_of_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "found", find)
    config, given = tiny(), Counting()
    contender = peers.peer_of(STAND_IN._replace(build=lambda package, config: given), config, CPU)
    rows = peers.padded(config, 0)
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
    peers.padded_training(model, loss, tiny(), hardware)(0)
    assert seen == [2] and torch.get_num_threads() == before


def test_the_best_of_each_package() -> None:
    def contender(name: str, package: str, as_it_comes: bool = False) -> peers.Contender:
        return peers.Contender(name, 1, lambda step: None, "", package, as_it_comes)

    contenders = [
        contender("a slow", "a"),
        contender("a fast", "a"),
        contender("a default", "a", as_it_comes=True),
        contender("b", "b"),
    ]
    rates = {
        name: Timing(rate, 0.0, 1) for name, rate in zip("abcd", (1.0, 3.0, 9.0, 2.0), strict=True)
    }
    named = {c.name: rate for c, rate in zip(contenders, rates.values(), strict=True)}
    assert [c.name for c in peers.best(contenders, named)] == ["a fast", "a default", "b"]


def installed(peer: peer_models.Peer) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return peer_models.found(peer.package)[0]
        except ImportError:
            pytest.skip(f"{peer.package} is not installed")


EACH = pytest.mark.parametrize("peer", peer_models.PEERS, ids=lambda p: f"{p.name} {p.as_it_comes}")


@pytest.mark.slow
@EACH
def test_a_real_peer_is_of_our_size_and_learns(peer: peer_models.Peer) -> None:
    installed(peer)
    config = tiny(learning_rate=0.003)
    contender = peers.peer_of(peer, config, CPU)
    ours = peers.on_one_batch(config, CPU).parameters
    # x-transformers keeps a bias in the gate and value of each MLP.
    biases = 0 if peer.package == "transformers" else 2 * config.mlp_size * config.num_layers
    assert contender.parameters == ours + biases
    losses = [float(contender.train(0)) for _ in range(20)]  # type: ignore[arg-type]
    assert losses[0] == pytest.approx(math.log(19), abs=0.5)
    assert losses[-1] < losses[0] - 0.3


@pytest.mark.slow
@EACH
def test_a_real_peer_reads_neither_padding_nor_what_comes_after(peer: peer_models.Peer) -> None:
    package = installed(peer)
    config = tiny(head_dim=16)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = peer.build(package, config).eval()
    tokens = torch.tensor([[5, 14, 6, 17, 11, 0, 0], [5, 14, 6, 17, 11, 7, 8]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1] * 7], dtype=torch.bool)
    with torch.no_grad():
        logits = peer.logits(model, tokens, mask)
        alone = peer.logits(model, tokens[:1, :5], mask[:1, :5])
        swapped = peer.logits(model, tokens[:1, [2, 1, 0, 3, 4]], mask[:1, :5])
    assert logits.shape == (2, 7, 19)
    torch.testing.assert_close(logits[0, :5], logits[1, :5])
    torch.testing.assert_close(alone[0], logits[0, :5])
    assert float((swapped[0, 4] - alone[0, 4]).abs().max()) > 1e-6  # order is seen


@pytest.mark.slow
def test_the_settings_reach_the_packages() -> None:
    config = tiny(head_dim=16)
    found: dict[str, Callable[[nn.Module], object]] = {
        "Llama, sdpa": lambda model: model.config._attn_implementation == "sdpa",  # type: ignore[union-attr]
        "Llama, eager": lambda model: model.config._attn_implementation == "eager",  # type: ignore[union-attr]
        "Decoder, attn_flash": lambda model: rotary_width(model) == 16 and flash(model),
        "Decoder, no attn_flash": lambda model: rotary_width(model) == 16 and not flash(model),
    }
    for peer in peer_models.PEERS:
        if not peer.as_it_comes:
            assert found.pop(peer.name)(peer.build(installed(peer), config))
    assert not found


def rotary_width(model: Any) -> int:
    return 2 * len(model.attn_layers.rotary_pos_emb.inv_freq)


def flash(model: Any) -> bool:
    return bool(model.attn_layers.layers[0][1].attend.flash)
