"""A loss or a gradient that is not finite: training stops in one line, or leaves the step out; no
weight that is not finite is ever saved."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tape_arith.arith.decoders import weights as checkpoint
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.runs.run import Run
from tape_arith.arith.training.session import continue_run
from tape_arith.arith.training.step import Stepper
from tape_arith.arith.training.trainer import MAX_SKIPPED_IN_A_ROW, NotFinite, Trainer
from tests.helpers.small_training import (
    assert_same_bits,
    final_weights,
    run,
    small,
    stop_after,
    train,
    trainer,
    untimed,
    weights,
)

SKIP = TrainOptions(on_nonfinite="skip")

pytestmark = pytest.mark.usefixtures("often")


def spoil(monkeypatch: pytest.MonkeyPatch, quantity: str, *steps: int) -> None:
    """Loss or gradient of these steps (from 1) are not finite, whoever takes them."""
    original = Stepper.accumulate_gradient

    def spoiled(self: Stepper, *arguments: Any) -> torch.Tensor:
        loss = original(self, *arguments)
        if self.step + 1 not in steps:
            return loss
        if quantity == "loss":
            return loss * float("nan")
        gradient = self.decoder.head.weight.grad
        assert gradient is not None
        gradient[3, 2] = float("inf")
        return loss

    monkeypatch.setattr(Stepper, "accumulate_gradient", spoiled)


def run_at(root: Path) -> Run:
    return Run(root / "mini" / "rope" / "seed-0")


def assert_all_finite(folder: Run) -> None:
    for path in (folder.path / "weights").iterdir():
        tensors, facts = checkpoint.load(path, "cpu")
        assert all(bool(tensor.isfinite().all()) for tensor in tensors.values()), path
        assert json.dumps(facts, allow_nan=False)


def test_it_stops_at_once_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, "gradient", 17)
    folder = run_at(tmp_path)
    says = (
        r"^the gradient is not finite at step 17 \(learning rate 0\.003\); the last good "
        rf"checkpoint is {re.escape(str(folder.latest))}, step 10: .*--on-nonfinite skip$"
    )
    for _ in range(2):  # going on meets it again
        with pytest.raises(Failure, match=says) as caught:
            run(tmp_path)
        assert "\n" not in str(caught.value)
        assert [line["step"] for line in folder.metrics()] == [5, 10, 15]
        assert checkpoint.load(folder.latest, "cpu")[1]["step"] == 10
        assert_all_finite(folder)
    with pytest.raises(Failure, match=r"^the loss is not finite at step 3 .*checkpoint"):
        spoil(monkeypatch, "loss", 3)
        run(tmp_path / "other")


@pytest.mark.parametrize("quantity", ["loss", "gradient"])
def test_a_step_left_out_changes_nothing_but_the_count(
    monkeypatch: pytest.MonkeyPatch, quantity: str
) -> None:
    spoil(monkeypatch, quantity, 4)
    one = trainer(small())
    for _ in range(3):
        one.train_step()
    before = {name: tensor.clone() for name, tensor in one.state()[0].items()}
    counts = [int(state["step"]) for state in one.optimizer.state.values()]
    one.train_step()
    assert_same_bits(one.state()[0], before)
    assert [int(state["step"]) for state in one.optimizer.state.values()] == counts
    assert one.step == 4
    # The next one takes the problems and the rate of step 5.
    one.train_step()
    assert one.optimizer.param_groups[0]["lr"] == pytest.approx(one.rate(5))
    name = "model/head.weight"
    assert not torch.equal(one.state()[0][name], before[name])


def skipping(steps: int = 30) -> tuple[Trainer, list[Any]]:
    """Train with such steps left out; returns the trainer and its lines."""
    lines: list[Any] = []
    one = trainer(small(steps=steps))
    one.on_nonfinite = "skip"
    return train(one, lines.append), untimed(lines)


def test_skipping_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that stopped goes on by leaving the step out, and so does every later call."""
    spoil(monkeypatch, "loss", 6, 13)
    spoil(monkeypatch, "gradient", 7, 25)
    with pytest.raises(Failure, match="step 6"):
        run(tmp_path)
    folder = continue_run(run_at(tmp_path), SKIP, should_stop=stop_after(7))
    note = "note: the loss is not finite at step 6 (learning rate 0.003): left out (1 so far)"
    assert note in capsys.readouterr().err.splitlines()
    while not folder.state().trained:
        continue_run(folder, should_stop=stop_after(7))  # it stands in the record
    unbroken, lines = skipping()
    assert_same_bits(final_weights(folder), weights(unbroken))
    assert untimed(folder.metrics()) == lines
    assert [line.get("skipped") for line in lines] == [None, 2, 3, 3, 4, 4]
    assert (folder.record().on_nonfinite, folder.record().skipped_steps) == ("skip", 4)
    assert_all_finite(folder)


def test_nobody_waits_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the steps are looked at with the next line of metrics; the weights are the same."""
    spoil(monkeypatch, "gradient", 6, 7, 13)
    unbroken, lines = skipping(15)
    settle = Trainer.check_steps

    def later(self: Trainer) -> None:
        if self.step % 5 == 0:
            settle(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "check_steps", later)
        late, late_lines = skipping(15)
        assert_same_bits(late.state()[0], unbroken.state()[0])
        assert late_lines == lines
        with pytest.raises(NotFinite, match=r"gradient .*step 6"):
            train(trainer(small()))


@pytest.mark.parametrize("stop", [0, 12])
def test_too_many_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    """The count goes on after a stop."""
    monkeypatch.setattr(Trainer, "log_every", 20)
    spoil(monkeypatch, "loss", *range(8, 8 + MAX_SKIPPED_IN_A_ROW))
    if stop:
        run(tmp_path, stop=stop, options=SKIP)
    says = r"step 17 .*, nor was it at the 9 steps before; the last good checkpoint is"
    with pytest.raises(Failure, match=says) as caught:
        run(tmp_path, options=SKIP)
    assert "--on-nonfinite" not in str(caught.value)
    assert_all_finite(run_at(tmp_path))


def test_weights_that_overflow_are_never_saved(tmp_path: Path) -> None:
    """Loss and gradient of the first step are finite; what the update makes of them is not."""
    with pytest.raises(Failure, match=r"step \d.*9e\+18"):
        run(tmp_path, small(learning_rate=9e18, warmup=0.0))
    assert run_at(tmp_path).checkpoints() == []
    one = trainer(small())
    with torch.no_grad():
        one.decoder.head.weight[1, 1] = float("inf")
    with pytest.raises(NotFinite, match=r"weights .*step 0"):
        one.state()
