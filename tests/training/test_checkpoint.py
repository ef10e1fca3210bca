"""Checkpoints: a damaged or foreign one is refused in one line; the older of two states goes on."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tape_arith.arith.decoders import weights as checkpoint
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.run import Run
from tape_arith.arith.scoring.session import score_run
from tape_arith.arith.training.session import continue_run
from tests.helpers.small_training import (
    Outcome,
    assert_same_bits,
    contents,
    final_weights,
    never,
    stop_after,
    untimed,
)

pytestmark = pytest.mark.usefixtures("often")
TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7.0)}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "weights" / "x.safetensors"
    facts = {"step": 3, "losses": [0.1], "encoding": "fire:init_l=512"}
    checkpoint.save(path, {"a": TENSORS["a"].T, "b": TENSORS["b"].requires_grad_()}, facts)
    tensors, loaded = checkpoint.load(path, "cpu")
    assert_same_bits(tensors, {"a": TENSORS["a"].T, "b": TENSORS["b"]})
    assert {key: loaded[key] for key in facts} == facts
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    other = tmp_path / "y.safetensors"
    checkpoint.save(other, dict(reversed(tensors.items())), facts)
    assert other.read_bytes() == path.read_bytes()


# ---- damaged files -------------------------------------------------------------------------


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def with_another_fact(path: Path) -> None:
    """Keep the length: nothing but the digest tells."""
    content = path.read_bytes()
    assert content.count(b'\\"step\\": 13') == 1
    path.write_bytes(content.replace(b'\\"step\\": 13', b'\\"step\\": 12'))


def with_a_flipped_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1000] ^= 16
    path.write_bytes(bytes(content))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (truncated, "is corrupt"),
    (lambda path: path.write_bytes(os.urandom(4096)), "is corrupt"),
    (lambda path: save_file(TENSORS, path), "is not a checkpoint of tape-arith"),
    (with_another_fact, "its SHA-256 does not match"),
    (with_a_flipped_bit, "its SHA-256 does not match"),
    (lambda path: os.truncate(path, 40 * 2**30), "is corrupt"),  # a hole: minutes to read
    (a_folder, "is not a file"),
]


def test_a_damaged_state_is_named(stopped: Run) -> None:
    stopped.previous.unlink()  # or training would go on from there
    content = stopped.latest.read_bytes()
    for damage, message in DAMAGE:
        stopped.latest.write_bytes(content)
        damage(stopped.latest)
        assert_refused(stopped, message)


def assert_refused(folder: Run, message: str) -> None:
    """Training does not go on, and one line names the state and says why."""
    with pytest.raises(Failure) as caught:
        continue_run(folder, should_stop=never)
    line = str(caught.value)
    assert str(folder.latest) in line and message in line and "\n" not in line


def test_damaged_weights_are_named_when_scored_and_come_back(finished: Run) -> None:
    # Copies: what is loaded maps the file, which changes in its place.
    before = {name: tensor.clone() for name, tensor in final_weights(finished).items()}
    with_a_flipped_bit(finished.final)
    fix = rf"{finished.final} is corrupt: .*; remove it, then `tape-arith train {finished.path}`"
    with pytest.raises(Failure, match=fix):
        score_run(finished, should_stop=never)
    finished.final.unlink()
    continue_run(finished, should_stop=never)
    assert_same_bits(final_weights(finished), before)


# ---- whole files that are wrong ------------------------------------------------------------


def test_a_sound_file_with_a_wrong_state_is_refused(stopped: Run) -> None:
    tensors, facts = cloned(stopped.latest)

    def assert_refused_with(tensors: dict[str, Tensor], facts: dict[str, Any], line: str) -> None:
        checkpoint.save(stopped.latest, tensors, facts)
        assert_refused(stopped, line)

    wrong_run = {"seed": 1, "encoding": "nope", "config_sha256": "0" * 64, "task_version": 2}
    for key, value in wrong_run.items():
        assert_refused_with(tensors, {**facts, key: value}, "belongs to another run")
        assert_refused(stopped, f"{key} is {value}")
    name = "exp_avg/blocks.0.qkv.weight"
    less = {key: tensor for key, tensor in tensors.items() if key != name}
    for other in (less, less | {name: tensors[name][:3]}, less | {name: tensors[name].double()}):
        assert_refused_with(other, facts, "is not a state of this run")
    wrong: list[tuple[str, object]] = [
        *(("step", value) for value in (31, -1, 1.5, True)),
        *(("seconds", value) for value in (1e308, -1.0)),
        *(("losses", value) for value in ([[1, 2], [3, 4]], [2**63 - 1], "x", None)),
        *(("tokens", -1), ("finer", 0), ("skipped", 99)),
        *(("gradient_norm", "much"), ("skipped_in_a_row", -1)),
    ]
    for key, value in wrong:
        assert_refused_with(tensors, {**facts, key: value}, "is not a state of this run")


def cloned(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load a checkpoint that is about to be written anew: what is loaded maps the file."""
    tensors, facts = checkpoint.load(path, "cpu")
    return {name: tensor.clone() for name, tensor in tensors.items()}, facts


def test_weights_that_cannot_be_scored(finished: Run) -> None:
    tensors, facts = cloned(finished.final)
    name = "model/embedding.weight"
    changes: list[tuple[Callable[[Tensor], Tensor], str]] = [
        (lambda tensor: tensor * float("nan"), "weights that are not finite"),
        (lambda tensor: tensor.to(torch.int8), "is int8"),
        (lambda tensor: tensor.double(), "is float64"),
        (lambda tensor: tensor[:1], "does not fit this run's decoder"),
    ]
    for change, message in changes:
        checkpoint.save(finished.final, {**tensors, name: change(tensors[name])}, facts)
        with pytest.raises(Failure, match=message):
            score_run(finished, should_stop=never)
    for key, message in (("task_version", "belongs to another run"), ("step", "step 2, and")):
        checkpoint.save(finished.final, tensors, {**facts, key: 2})
        with pytest.raises(Failure, match=message):
            score_run(finished, should_stop=never)


# ---- two states are kept -------------------------------------------------------------------


def step_of(path: Path) -> int:
    return int(checkpoint.load(path, "cpu")[1]["step"])


@pytest.mark.parametrize(
    ("stop", "damages", "good", "step"),
    [
        (0, [with_a_flipped_bit], "previous", 10),
        (14, [truncated, with_a_flipped_bit], "before-cooldown", 24),
    ],
)
def test_the_older_state_gives_the_same_run(
    stopped: Run,
    stop: int,
    damages: list[Callable[[Path], None]],
    good: str,
    step: int,
    uninterrupted: Outcome,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = stopped
    if stop:
        continue_run(folder, should_stop=stop_after(stop))
    for damage, path in zip(damages, (folder.latest, folder.previous), strict=False):
        damage(path)
    capsys.readouterr()
    continue_run(folder, should_stop=stop_after(2))
    (note,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note")]
    assert note.startswith(f"note: {folder.latest}")
    assert f" {good}.safetensors" in note and note.endswith(f"step {step}")
    # The damaged one has not taken the place of the good one.
    assert step_of(folder.latest) == step + 2
    assert good != "previous" or step_of(folder.previous) == step
    continue_run(folder, should_stop=never)
    assert folder.state().trained and folder.checkpoints() == [folder.before_cooldown]
    assert_same_bits(final_weights(folder), uninterrupted[0])
    assert untimed(folder.metrics()) == uninterrupted[1]


def test_where_all_are_damaged_nothing_is_touched(stopped: Run) -> None:
    folder = stopped
    for path in folder.checkpoints():
        truncated(path)
    before = contents(folder.path / "weights")
    with pytest.raises(Failure, match=rf"{folder.latest} .*--fresh") as caught:
        continue_run(folder, should_stop=never)
    assert "\n" not in str(caught.value)
    assert contents(folder.path / "weights") == before
