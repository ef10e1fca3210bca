"""Two states of an unfinished run are kept; the older is used where the newer is damaged, and what
comes of it is the run that nothing happened to."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from arith.errors import Failure, UsageError
from arith.suite import runs
from arith.suite.folders import RunFolder
from arith.suite.runs import continue_run, extend_run
from arith.suite.scores import score_run
from arith.training import checkpoint
from tests.training.small import (
    Outcome,
    assert_same_bits,
    contents,
    final_weights,
    never,
    run,
    small,
    stop_after,
    untimed,
)
from tests.training.test_checkpoint import (
    gone,
    truncated,
    with_a_flipped_bit,
)

pytestmark = pytest.mark.usefixtures("often")


def step_of(path: Path) -> int:
    return int(checkpoint.load(path, "cpu")[1]["step"])


def assert_unbroken(folder: RunFolder, expected: Outcome) -> None:
    assert folder.finished() and folder.states() == [folder.before_cooldown]
    assert_same_bits(final_weights(folder), expected[0])
    assert untimed(folder.metrics()) == expected[1]


def test_the_two_newest_are_kept(tmp_path: Path) -> None:
    folder = run(tmp_path, stop=9)
    assert folder.states() == [folder.latest]
    continue_run(folder, should_stop=stop_after(14))
    assert (step_of(folder.latest), step_of(folder.previous)) == (23, 20)
    continue_run(folder, should_stop=stop_after(2))
    assert (step_of(folder.latest), step_of(folder.previous)) == (25, 23)


@pytest.mark.parametrize(
    "damage",
    [truncated, with_a_flipped_bit, gone],
    ids=lambda damage: damage.__name__,
)
def test_the_older_state_gives_the_same_run(
    tmp_path: Path,
    damage: Callable[[Path], None],
    uninterrupted: Outcome,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = run(tmp_path, stop=23)
    damage(folder.latest)
    capsys.readouterr()
    continue_run(folder, should_stop=stop_after(2))
    (note,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note")]
    assert note.startswith(f"note: {folder.latest} is ")
    assert note.endswith(": training goes on from previous.safetensors, step 20")
    # The damaged one has not taken the place of the good one.
    assert (step_of(folder.latest), step_of(folder.previous)) == (22, 20)
    continue_run(folder, should_stop=never)
    assert_unbroken(folder, uninterrupted)


def test_where_both_are_damaged_the_one_before_the_cool_down_serves(
    tmp_path: Path, uninterrupted: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(tmp_path, stop=27)
    truncated(folder.latest)
    with_a_flipped_bit(folder.previous)
    continue_run(folder, should_stop=never)
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note")]
    assert len(notes) == 1 and notes[0].endswith("from before-cooldown.safetensors, step 24")
    assert_unbroken(folder, uninterrupted)


def test_where_all_are_damaged_nothing_is_touched(stopped: RunFolder) -> None:
    folder = stopped
    for path in folder.states():
        truncated(path)
    before = contents(folder.path / "weights")
    with pytest.raises(Failure, match=rf"{folder.latest} is corrupt: .*--fresh") as caught:
        continue_run(folder, should_stop=never)
    assert "\n" not in str(caught.value)
    assert contents(folder.path / "weights") == before


def test_an_extension_that_lost_its_states_is_not_at_its_end(finished: RunFolder) -> None:
    """The final weights of the shorter budget are no result of the longer."""
    folder = finished
    extend_run(folder, 60)
    with_a_flipped_bit(folder.latest)
    with pytest.raises(KeyboardInterrupt):
        continue_run(folder, should_stop=interrupted)
    assert folder.final.exists() and not folder.finished()
    with pytest.raises(UsageError, match="not trained to its end"):
        score_run(folder, should_stop=never)
    for state in (folder.latest, folder.previous):
        state.unlink(missing_ok=True)
    assert folder.finished()  # as far as one can see, without a look into the file
    with pytest.raises(Failure, match=r"final.safetensors is of step 30, and .* trained for 60"):
        score_run(folder, should_stop=never)


def interrupted() -> bool:
    raise KeyboardInterrupt


def test_a_state_that_says_what_cannot_be(stopped: RunFolder) -> None:
    """Whole by its digest, and still wrong."""
    tensors, facts = checkpoint.load(stopped.latest, "cpu")
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    wrong: list[tuple[str, object]] = [
        *(("step", value) for value in (31, -1, 1.5, True)),
        *(("seconds", value) for value in (1e308, -1.0)),
        *(("losses", value) for value in ([[1, 2], [3, 4]], [2**63 - 1], "x", None)),
        *(("tokens", -1), ("finer", 0), ("skipped", 99)),
        *(("gradient_norm", "much"), ("skipped_in_a_row", -1)),
    ]
    for fact, value in wrong:
        checkpoint.save(stopped.latest, tensors, {**facts, fact: value})
        with pytest.raises(Failure, match=rf"{stopped.latest} is not a state of this run"):
            continue_run(stopped, should_stop=never)


def test_weights_that_cannot_be_scored(finished: RunFolder) -> None:
    tensors, facts = checkpoint.load(finished.final, "cpu")
    tensors = {key: tensor.clone() for key, tensor in tensors.items()}
    name = "model/embedding.weight"
    changes: list[tuple[Callable[[Tensor], Tensor], str]] = [
        (lambda tensor: tensor * float("nan"), "weights that are not finite"),
        (lambda tensor: tensor.to(torch.int8), "is int8"),
        (lambda tensor: tensor.double(), "is float64"),
        (lambda tensor: tensor[:1], "does not fit the run's decoder"),
    ]
    for change, message in changes:
        checkpoint.save(finished.final, {**tensors, name: change(tensors[name])}, facts)
        with pytest.raises(Failure, match=message):
            score_run(finished, should_stop=never)


def test_a_damaged_line_of_metrics_is_told_and_alone_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(tmp_path, stop=23)
    lines = folder.metrics_file.read_text().splitlines(keepends=True)
    steps = [line["step"] for line in folder.metrics()]
    cut = lines[1][:20] + "\n"
    folder.metrics_file.write_text("".join([lines[0], cut, *lines[2:], '{"step": 2']))
    continue_run(folder, should_stop=never)
    told = [line for line in capsys.readouterr().err.splitlines() if "is left out" in line]
    assert len(told) == 1 and told[0].startswith(f"note: {folder.metrics_file}, line 2, is left")
    assert [line["step"] for line in folder.metrics()][: len(steps) - 1] == [steps[0], *steps[2:]]


class Killed(BaseException):
    """Nobody catches it, as nobody catches SIGKILL."""


def killed_at(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die at the `call`-th move or removal of a file, before it is done."""
    count = itertools.count()

    def dying(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if next(count) == call:
                raise Killed(name)
            return original(*arguments, **options)

        return wrapped

    for name in ("replace", "unlink", "rename"):  # those of a Path come here too
        monkeypatch.setattr(os, name, dying(name, getattr(os, name)))


def all_of_it(root: Path) -> RunFolder:
    """Train, then extend: what a person would type again after each kill."""
    folder = RunFolder(root / "mini" / "rope" / "seed-0")
    if not folder.exists() or folder.record().config.steps == 12:
        run(root, small(steps=12), curves=False)
    extend_run(folder, 16)
    return continue_run(folder, curves=False, should_stop=never)


@pytest.mark.slow
def test_killed_at_every_move_and_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after one is the same as killed before the next."""
    monkeypatch.setattr(runs, "SAVE_EVERY", 5)
    whole = all_of_it(tmp_path / "whole")
    for call in itertools.count():
        root = tmp_path / str(call)
        try:
            with monkeypatch.context() as patch:
                killed_at(call, patch)
                all_of_it(root)
            break  # there is no such call any more
        except Killed:
            folder = all_of_it(root)
        assert folder.finished() and folder.states() == [folder.before_cooldown]
        assert_same_bits(final_weights(folder), final_weights(whole))
        assert untimed(folder.metrics()) == untimed(whole.metrics())
        assert folder.timings().keys() == whole.timings().keys()
        assert not list(root.rglob("*.partial"))
    assert call > 20
