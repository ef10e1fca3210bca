"""Runs are a function of encoding, config and seed, wherever they are stopped."""

import itertools
import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.dataset import Dataset
from tape_arith.arith.data.write_dataset import generate
from tape_arith.arith.decoders import weights as checkpoint
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.errors import UsageError
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.runs.run import Run
from tape_arith.arith.scoring import score
from tape_arith.arith.stopping import Stopper
from tape_arith.arith.training import session
from tape_arith.arith.training.begin import extend_run
from tape_arith.arith.training.checkpoints import Checkpoints
from tape_arith.arith.training.session import continue_run
from tape_arith.arith.training.trainer import Line
from tape_arith.models.decoder import Decoder
from tests.helpers.small_training import (
    Outcome,
    assert_same_bits,
    contents,
    cpu,
    final_weights,
    never,
    run,
    small,
    stop_after,
    train,
    trainer,
    untimed,
    weights,
)
from tests.helpers.watched_writes import Watcher, watched

pytestmark = pytest.mark.usefixtures("often")


def resumed(root: Path, config: Config, every: int, name: str = "rope") -> Run:
    """A run that is stopped after so many steps again and again."""
    for _ in range(config.steps):
        folder = run(root, config, name, stop=every)
        if folder.state().trained:
            return folder
        assert folder.latest.exists()
    raise AssertionError("never finished")


def test_a_run_is_its_trainer(finished: Run, uninterrupted: Outcome) -> None:
    folder = finished
    assert folder.state().trained and not folder.latest.exists()
    assert_same_bits(final_weights(folder), uninterrupted[0])
    assert untimed(folder.metrics()) == uninterrupted[1]
    assert [line["step"] for line in folder.metrics()] == [5, 10, 15, 20, 25, 30]
    assert [line["exact_match"] is None for line in folder.metrics()] == [True, False] * 3
    facts = checkpoint.load(folder.before_cooldown, "cpu")[1]
    assert facts["step"] == 24


@pytest.mark.parametrize(
    "stops", [(4, 9, 10, 1, 5), pytest.param((1,) * 29, marks=pytest.mark.slow)]
)
def test_stopped_and_resumed_is_unbroken(
    tmp_path: Path, uninterrupted: Outcome, stops: tuple[int, ...]
) -> None:
    """Before the first save, between two, at the cool-down's and before it, and near the end."""
    for stop in stops:
        folder = run(tmp_path, small(), stop=stop)
        assert folder.latest.exists() and not folder.state().trained
    with open(folder.metrics_file, "a") as file:  # cut short by a kill
        file.write(json.dumps({**folder.metrics()[-1], "step": 30}) + '\n{"step": 35, "lo')
    run(tmp_path, small())
    assert_same_bits(final_weights(folder), uninterrupted[0])
    assert untimed(folder.metrics()) == uninterrupted[1]


def test_an_evaluation_that_is_stopped_is_made_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(score.TOKENS_A_BATCH, "cpu", 256)  # so that it has several rounds
    monkeypatch.setattr(score, "_ROUND", 0.0)
    config, expected, lines, moves = small(steps=10), list[Line](), list[Line](), 0
    unbroken, one = train(trainer(config), expected.append), trainer(config)
    time_is_up, called_off = Stopper(0.0), Stopper()
    called_off.signal = signal.SIGTERM
    while not one.done:
        vars(one).update(log_every=5, evaluate_every=10)
        lines += filter(None, [one.advance(time_is_up)])
        if one.owed is not None:
            assert one.advance(called_off) is None, "a signal stops it again"
            (tensors, facts), moves, one = one.state(), moves + 1, trainer(config)
            one.restore(tensors, json.loads(json.dumps(facts)), "here")
    assert moves == 1 and untimed(lines) == untimed(expected)
    assert_same_bits(weights(one), weights(unbroken))


@pytest.mark.slow
@pytest.mark.parametrize("name", known_names("encoding"))
def test_every_encoding_resumes_in_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(session, "detect", lambda *choice: cpu(torch.bfloat16))
    config = small(steps=8, batch_size=8)
    folder = resumed(tmp_path, config, 5, name)
    unbroken = train(trainer(config, name, hardware=cpu(torch.bfloat16)))
    assert_same_bits(final_weights(folder), weights(unbroken))


def test_what_an_encoding_drew_moves_with_its_weights(tmp_path: Path) -> None:
    """The key of random features is no parameter: it is kept all the same, by resuming too."""
    name = "tape:start=fourier"
    folder = resumed(tmp_path, small(steps=8), 5, name)
    one = trainer(small(steps=8), name)
    assert_same_bits(final_weights(folder), {**weights(train(one)), **drawn(one.decoder)})
    other = decoder_for(small(), parse(name), seed=1)
    final = final_weights(folder)
    other.load_state_dict({key.removeprefix("model/"): final[key] for key in final})
    assert_same_bits(drawn(other), drawn(one.decoder))


def drawn(decoder: Decoder) -> dict[str, torch.Tensor]:
    return {"model/pe.fourier_key": decoder.state_dict()["pe.fourier_key"]}


@pytest.mark.parametrize(
    ("name", "dtype"), [("tape-heads", torch.float32), ("rope", torch.bfloat16)]
)
def test_the_number_of_threads_changes_no_bit(name: str, dtype: torch.dtype) -> None:
    config = small(steps=3, groups=5)
    one, two = (train(trainer(config, name, hardware=cpu(dtype, threads))) for threads in (1, 2))
    assert_same_bits(weights(two), weights(one))


def test_a_dataset_and_problems_made_as_needed_give_one_run(tmp_path: Path) -> None:
    config = small(num_problems=100, steps=15)  # 15 batches of 16: more than twice over
    bucket = Bucket(config.task, config.trained_digits, 0, "train")
    generate(tmp_path / "data", bucket, 100)
    made = train(trainer(config))
    folder = run(tmp_path / "runs", config, options=TrainOptions(tmp_path / "data"), stop=8)
    assert_same_bits(final_weights(run(tmp_path / "runs", config)), weights(made))
    assert folder.record().data == Dataset(tmp_path / "data").manifest.sha256


def test_a_finished_run_is_left_alone_and_never_shortened(tmp_path: Path, finished: Run) -> None:
    before = contents(tmp_path)
    assert run(tmp_path, small()) == finished
    continue_run(finished, should_stop=never)
    extend_run(finished, 30)
    for steps in (29, 0, -1):
        with pytest.raises(UsageError, match="30 steps"):
            extend_run(finished, steps)
    with pytest.raises(UsageError, match="'steps'"):
        extend_run(finished, 10**13)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("killed", [False, True])
def test_a_fresh_start_forgets_the_old_run(tmp_path: Path, finished: Run, killed: bool) -> None:
    """Its record is removed first; its weights must not pass for those of the next run."""
    if killed:
        finished.record_file.unlink()
    config, lines = small(steps=12), list[Line]()
    run(tmp_path, config, fresh=not killed)
    assert_same_bits(final_weights(finished), weights(train(trainer(config), lines.append)))
    assert untimed(finished.metrics()) == untimed(lines)


# ---- extension -----------------------------------------------------------------------------


def extended(steps: int, config: Config) -> Outcome:
    """Return what a trainer gives in one go with the schedule of an extended run."""
    longer = replace(config, steps=steps)
    lines: list[Line] = []
    done = train(trainer(longer, schedule=longer.schedule(config.steps)), lines.append)
    return weights(done), untimed(lines)


def test_an_extension_goes_on_from_before_the_cooldown_and_resumes(finished: Run) -> None:
    folder, before = finished, final_weights(finished)["model/head.weight"].clone()
    extend_run(folder, 34)
    assert not folder.state().trained
    assert checkpoint.load(folder.latest, "cpu")[1]["step"] == 24
    continue_run(folder, should_stop=never)
    extend_run(folder, 40)
    extend_run(folder, 40)  # called again, as after a kill
    while not folder.state().trained:
        continue_run(folder, should_stop=stop_after(6))
    expected, lines = extended(40, small())
    assert_same_bits(final_weights(folder), expected)
    assert untimed(folder.metrics()) == lines
    assert not torch.equal(expected["model/head.weight"], before)
    # The rate stays up where the first run cooled down: the warm-up alone would not tell.
    assert folder.record().schedule.warmup_steps == 3


def test_a_run_without_cooldown_is_extended_from_its_end(tmp_path: Path) -> None:
    config = small(cooldown=0.0, steps=10)
    folder = run(tmp_path, config)
    extend_run(folder, 15)
    continue_run(folder, should_stop=never)
    assert_same_bits(final_weights(folder), extended(15, config)[0])


# ---- what goes wrong -----------------------------------------------------------------------


class Killed(BaseException):
    """Nobody catches it, as nobody catches SIGKILL."""


def killer(call: int) -> Watcher:
    """Die at the `call`-th move or removal of a file, before it is done."""
    count = itertools.count()

    def kill(operation: str, path: str) -> None:
        if operation in ("rename", "remove") and next(count) == call:
            raise Killed(path)

    return kill


def all_of_it(root: Path) -> Run:
    """Train, then extend: what a person would type again after each kill."""
    folder = Run(root / "mini" / "rope" / "seed-0")
    if not folder.exists() or folder.record().config.steps == 12:
        run(root, small(steps=12), options=TrainOptions(curves=False))
    extend_run(folder, 16)
    return continue_run(folder, TrainOptions(curves=False), should_stop=never)


@pytest.mark.slow
def test_killed_at_every_move_and_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after one is the same as killed before the next."""
    monkeypatch.setattr(Checkpoints, "save_every", 5)
    unbroken = all_of_it(tmp_path / "unbroken")
    for call in itertools.count():
        root = tmp_path / str(call)
        try:
            with watched(root, killer(call)):
                all_of_it(root)
            break  # there is no such call any more
        except Killed:
            folder = all_of_it(root)
        assert folder.state().trained and folder.checkpoints() == [folder.before_cooldown]
        assert_same_bits(final_weights(folder), final_weights(unbroken))
        assert untimed(folder.metrics()) == untimed(unbroken.metrics())
        assert folder.record().seconds.keys() == unbroken.record().seconds.keys()
        assert not list(root.rglob("*.partial"))
    assert call > 20
