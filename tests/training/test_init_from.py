"""Runs that begin from the weights of a finished one: rope's, and TAPE's parameters beside."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tape_arith
from tape_arith.arith.compare.captions import preset_words
from tape_arith.arith.compare.groups import budget_preference
from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import pad
from tape_arith.arith.decoders import weights as checkpoint
from tape_arith.arith.decoders.build import decoder_for
from tape_arith.arith.decoders.weights import load_state, trained_decoder
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.files import sha256
from tape_arith.arith.grids.facts import Budget
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.request import Request
from tape_arith.arith.runs.run import Run
from tape_arith.arith.scoring.score import sequences
from tape_arith.arith.training.begin import extend_run
from tape_arith.arith.training.checkpoints import Checkpoints
from tape_arith.arith.training.session import Session, continue_run, train_run
from tape_arith.arith.training.trainer import Trainer
from tape_arith.models.decoder import Decoder
from tape_arith.models.runner import Runner
from tests.helpers.small_training import (
    assert_same_bits,
    cpu,
    final_weights,
    never,
    small,
    stop_after,
    weights,
)
from tests.helpers.tiny_runs import done, refused, settings, untouched

TINY = settings(num_layers=2, steps=8)
ROPE = Run(Path("runs/mini/rope/seed-0"))


@pytest.fixture(scope="module")
def rope_made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rope")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done("train", "--pe", "rope", *TINY)
    return folder


@pytest.fixture
def rope(rope_made_once: Path, here: Path) -> Run:
    """A finished run of rope, by command."""
    shutil.copytree(rope_made_once, here, dirs_exist_ok=True)
    return ROPE


def logits(decoder: Decoder) -> Tensor:
    """float64, over problems of all lengths."""
    bucket = Bucket("addition", 3, 0, "evaluation")
    rows = pad(bucket.problems(0, 18), bucket.keys(0, 18), np.arange(18))
    with torch.no_grad():
        return decoder.double().eval().cpu()(sequences(rows, "cpu"))


def before_the_first_step(
    monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> tuple[Run, Decoder]:
    """Kill a command when training would begin; return its folder and the decoder saved in it."""
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_take_steps", lambda *_: None)
        patch.setattr("tape_arith.arith.commands.jobs.leave", lambda stopper: None)
        folder = Run(Path(done("train", *arguments, "--no-score").out.strip()))
    record = folder.record()
    decoder = decoder_for(record.config, parse(record.encoding), record.seed)
    tensors, facts = load_state(folder.latest, record, "cpu")
    assert facts["step"] == 0
    assert not any(tensor.any() for key, tensor in tensors.items() if not key.startswith("model/"))
    decoder.load_state_dict(
        {key.removeprefix("model/"): tensors[key] for key in tensors if key.startswith("model/")}
    )
    return folder, decoder


@pytest.mark.parametrize(
    ("name", "option"), [("tape", []), ("tape", ["--only-positional"]), ("tape-heads", [])]
)
def test_the_first_logits_are_those_of_rope(
    rope: Run, name: str, option: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = ("--pe", name, "--init-from", rope.path, *option)
    folder, decoder = before_the_first_step(monkeypatch, *begin)
    own = {key: p.clone() for key, p in decoder.pe.named_parameters()}
    of_rope = trained_decoder(rope, parse("rope"), rope.record())
    assert (logits(decoder) - logits(of_rope)).abs().max() < 1e-12
    record = folder.record()
    fresh = decoder_for(record.config, parse(name), record.seed)
    assert_same_bits(own, dict(fresh.pe.named_parameters()))
    # Eight steps away: else all of this would be vacuous.
    assert (logits(fresh) - logits(of_rope)).abs().max() > 1e-3


def test_the_record(rope: Run) -> None:
    with untouched(rope.path):
        result = done("train", "--pe", "tape", "--init-from", rope.path, "--set", "steps=4")
    folder = Run(Path("runs/mini/tape@from=rope/seed-0"))
    record, source_record = folder.record(), rope.record()
    assert result.out.splitlines()[-1] == str(folder.path)
    assert record.encoding == "tape@from=rope" and record.seed == source_record.seed
    assert record.config == replace(source_record.config, steps=4)  # the rest of its recipe
    before = record.init_from
    assert before is not None and before.encoding == "rope" and before.seed == 0
    assert (before.steps, before.problems) == (8, 8 * 8)
    assert before.config_sha256 == source_record.config.sha256
    assert before.weights_sha256 == sha256(rope.final)
    grid = Grid.load(folder.path / "grid.json")
    assert grid.settings["steps_before"] == grid.budget.steps_before == 8
    assert preset_words(grid.preset, grid.settings).endswith(", from runs of 8 steps")
    assert json.loads((rope.path / "run.json").read_text())["init_from"] is None
    first, last = final_weights(rope), final_weights(folder)
    assert not torch.equal(last["model/head.weight"], first["model/head.weight"])
    # Once more is nothing: not even a file changes.
    with untouched(folder.path):
        done("train", "--pe", "tape", "--init-from", rope.path, "--set", "steps=4")
    done("train", "--pe", "tape", "--init-from", folder.path, "--no-score")
    chained = Run(Path("runs/mini/tape@from=tape@from=rope/seed-0")).record().init_from
    assert chained is not None and (chained.steps, chained.problems) == (12, 12 * 8)


def test_tables_never_mix_them_with_plain_runs(rope: Run) -> None:
    for name in ("tape+yarn", "rope"):
        done("train", "--pe", name, "--init-from", rope.path)
    done("score", "runs/mini/tape@from=rope/seed-0")
    with untouched(rope.path):
        assert "tape@from=rope" in refused("leaderboard", "--compare", "rope,tape@from=rope")
        # Those of one that began on its own are fewer here, and are shown all the same.
        assert tape_arith.leaderboard().encoding.tolist() == ["rope"]
        partners = tape_arith.leaderboard(pe="tape@from=rope,rope@from=rope")
        assert sorted(partners.encoding) == ["rope@from=rope", "tape@from=rope"]
        listed = json.loads(done("list", "--json").out)["runs"]
    assert [run["encoding"] for run in listed] == ["rope", "rope@from=rope", "tape@from=rope"]


def test_those_of_the_presets_own_steps_do_not_stand_for_it() -> None:
    """A grid is of the preset as it stands only where its weights are its own."""
    mini = load_preset("mini")
    own = Budget(
        steps=mini.steps,
        first_steps=mini.steps,
        batch_size=mini.batch_size,
        config_sha256=mini.sha256,
    )
    assert budget_preference("mini", own)[0]
    assert not budget_preference("mini", replace(own, steps_before=8))[0]


# ---- in this process -----------------------------------------------------------------------

SMALL = small(steps=12)


@pytest.fixture
def source(tmp_path: Path, often: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A finished run of rope; runs save every few steps."""
    monkeypatch.setattr(Checkpoints, "save_every", 4)
    return train(tmp_path, "rope")


def train(root: Path, name: str, config: Config = SMALL, **options: Any) -> Run:
    options = {"should_stop": never, **options}
    return train_run(Request(parse(name), 0, "mini", config, root), **options)


def by_hand(source: Run, name: str, *, frozen: bool = False) -> dict[str, Tensor]:
    """Train from the source's weights in a plain loop, met with the problems after the source's."""
    decoder = decoder_for(SMALL, parse(name), 0)
    decoder.load_state_dict(
        {key.removeprefix("model/"): tensor for key, tensor in final_weights(source).items()},
        strict=False,
    )
    for key, parameter in decoder.named_parameters():
        parameter.requires_grad_(not frozen or key.startswith("pe."))
    bucket = Bucket("addition", SMALL.trained_digits, 0, "train")
    seen = SMALL.steps * SMALL.batch_size
    trainer = Trainer(Runner(decoder, cpu()), bucket, SMALL, skip=seen)
    expected = bucket.problems(seen + 16, seen + 32)
    assert trainer.batches.problems(1)[0].tokens.tolist() == expected.tokens.tolist()
    assert np.array_equal(trainer.batches.problems(1)[1], bucket.keys(seen + 16, seen + 32))
    for _ in range(SMALL.steps):
        trainer.train_step()
    return weights(trainer)


@pytest.mark.parametrize("frozen", [pytest.param(False, marks=pytest.mark.slow), True])
def test_training_goes_on_whatever_kills_it(tmp_path: Path, source: Run, frozen: bool) -> None:
    """Before the first save and after; and it needs its source no more."""
    begin: dict[str, Any] = {"source": source, "only_positional": frozen}
    for stops in (1, 5):
        folder = train(tmp_path, "tape", should_stop=stop_after(stops), **begin)
        assert folder.latest.exists() and not folder.state().trained
    expected, first = by_hand(source, "tape", frozen=frozen), final_weights(source)
    source.final.unlink()
    lost = folder.latest.parent.rename(tmp_path / "lost")
    with pytest.raises(Failure, match="weights"):
        continue_run(folder, should_stop=never)  # it never goes on from weights of its own
    lost.rename(folder.latest.parent)
    while not folder.state().trained:
        continue_run(folder, should_stop=stop_after(3))
    assert_same_bits(final_weights(folder), expected)
    marker = "only-positional-from" if frozen else "from"
    assert folder.path.parent.name == f"tape@{marker}=rope"
    for key, tensor in final_weights(folder).items():
        unchanged = key in first and torch.equal(tensor, first[key])
        assert unchanged == (frozen and not key.startswith("model/pe.")), key
    # By its name, once it is there.
    assert train(tmp_path, f"tape@{marker}=rope") == folder
    extend_run(folder, 20)
    continue_run(folder, should_stop=never)
    assert checkpoint.load(folder.final, "cpu")[1]["step"] == 20


def test_wrong_sources_are_refused(tmp_path: Path, source: Run) -> None:
    unfinished = train(tmp_path, "nope", should_stop=stop_after(1))
    quick = replace(SMALL, steps=1)
    tape, other = train(tmp_path, "tape", quick), train(tmp_path / "other", "rope", quick)

    def message(name: str, config: Config = SMALL, seed: int = 0, **options: Any) -> str:
        with untouched(tmp_path), pytest.raises(UsageError) as caught:
            planned = Request(parse(name), seed, "mini", config, tmp_path)
            train_run(planned, should_stop=never, **options)
        return str(caught.value)

    wider = replace(SMALL, hidden_size=24, head_dim=12)
    assert "hidden_size=16" in message("tape", wider, source=source)
    digits = replace(SMALL, trained_digits=3)
    assert "trained_digits=2" in message("tape", digits, source=source)
    looped = replace(SMALL, loops=2)
    assert "loops=1" in message("tape", looped, source=source)
    assert "seed 0," in message("tape", seed=1, source=source)
    assert str(unfinished.path) in message("tape", source=unfinished)
    assert "pe.layers.0" in message("rope", source=tape)
    assert "--only-positional" in message("rope", source=source, only_positional=True)
    assert "--init-from RUN" in message("tape@from=rope")
    assert message("tape@from=fire", source=source).startswith("tape@from=fire")
    train(tmp_path, "tape", source=source, should_stop=stop_after(1))
    faster = replace(SMALL, learning_rate=1e-3)
    assert "other weights" in message("tape", source=other)
    assert "(learning_rate" in message("tape", faster, source=source)
