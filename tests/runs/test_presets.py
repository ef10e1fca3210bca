"""Presets and settings: what they say, what they refuse, and one more in one file."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tape_arith.arith.compare.captions import preset_words
from tape_arith.arith.decoders.weights import trained_decoder
from tape_arith.arith.errors import Failure
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.runs.preset import (
    PRESETS_FOLDER,
    asks_to_compile,
    changed_settings,
    load_preset,
    presets,
)
from tape_arith.arith.runs.run import Run
from tests.helpers.tiny_runs import SETTINGS, done, refused, settings

MINE = "# As small as can be.\n" + "\n".join(
    f"{key} = {value}"
    for key, value in {
        "task": '"addition"',
        **SETTINGS,
        "warmup": "0.1",
        "beta1": "0.9",
        "beta2": "0.98",
        "epsilon": "1e-12",
        "weight_decay": "0.01",
        "clip": "0.5",
        "groups": "4",
        "evaluation_seed": "0",
    }.items()
)


def test_the_presets() -> None:
    assert {"mini", "paper-20", "paper-40", "small-20"} <= set(presets())
    for name in known_names("task"):  # one for each, at mini's recipe
        preset = load_preset("mini" if name == "addition" else f"mini-{name}")
        lengths = ("trained_digits", "tested_digits", "trained_operands", "tested_operands")
        own = {**dict.fromkeys(lengths), "task": name, "problems_per_cell": None}
        own |= {"steps": None, "cooldown": None}  # where a thousand steps do not fit rope
        assert preset.task.partition(":")[0] == name
        times = {"passkey": 8, "recall": 4}.get(name, 2)  # where twice is too near 100 %
        assert preset.tested_digits == times * preset.trained_digits
        assert changed_settings(preset, "mini").keys() <= own.keys()
    paper = load_preset("paper-40")
    assert (paper.trained_digits, paper.tested_digits, paper.num_problems) == (40, 80, 20_000_000)
    assert (paper.steps, paper.batch_size, paper.clip) == (20_000, 512, 0.5)
    assert (paper.beta1, paper.beta2, paper.weight_decay) == (0.9, 0.98, 0.01)
    assert (paper.num_layers, paper.hidden_size, paper.num_heads) == (16, 1024, 16)
    assert (paper.head_dim, paper.mlp_size, paper.problems_per_cell) == (64, 1024, 100)
    short = load_preset("paper-20")
    assert short == replace(paper, trained_digits=20, tested_digits=40, steps=10_000)
    mini = load_preset("mini")
    assert (mini.trained_digits, mini.tested_digits, mini.batch_size) == (8, 16, 256)
    assert mini.learning_rate in (1e-3, 2e-3, 3e-3)
    longer = load_preset("mini-long")
    assert longer == replace(mini, steps=4_000, cooldown=0.6)


@pytest.fixture
def mine(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of one's own among the presets."""
    shutil.copytree(PRESETS_FOLDER, here / "presets")
    monkeypatch.setattr("tape_arith.arith.runs.preset.PRESETS_FOLDER", here / "presets")
    (here / "presets" / "mine.toml").write_text(MINE)
    return here / "presets" / "mine.toml"


def test_a_preset_in_one_file(mine: Path) -> None:
    done("train", "--pe", "rope", "--preset", "mine", "--no-score")
    assert Path("runs/mine/rope/seed-0/run.json").exists()
    assert "mine" in done("list").out.split()
    listed = {preset["name"] for preset in json.loads(done("list", "--json").out)["presets"]}
    assert listed == set(presets()) > {"mine", "mini"}
    mine.write_text(MINE.replace("steps = 4", "steps = true"))
    line = refused("train", "--pe", "rope", "--preset", "mine", code=1)
    assert "mine.toml" in line and "'steps'" in line and "True" in line


def test_heads_follow_the_width() -> None:
    mini = load_preset("mini")  # 4 heads of 32
    for changed, heads in (
        ({"hidden_size": "256"}, 8),
        ({"head_dim": 16}, 8),
        ({"hidden_size": 256, "num_heads": 4}, 4),
        ({"mlp_size": 512}, 4),
    ):
        assert mini.with_settings(changed).num_heads == heads


def test_a_preset_on_another(mine: Path) -> None:
    mine.write_text('# Longer.\nbase = "mini"\nsteps = 1_500\n')
    mini = load_preset("mini")
    assert load_preset("mine") == replace(mini, steps=1_500)
    mine.write_text('base = "mini-long"\n')
    assert asks_to_compile("mine") and not asks_to_compile("mini")
    for wrong, message in (
        ('base = "mini-long"\ncompile = "often"\n', "mine.toml: compile"),
        ('base = "mine"\n', "its base"),
    ):
        mine.write_text(wrong)
        with pytest.raises(Failure, match=message):
            load_preset("mine")


def test_variants_of_the_decoder_reach_grids_and_captions(here: Path) -> None:
    variant = ("norm=deepnorm", "loops=2", "input_injection=true", "attention_scale=log")
    changed = [word for pair in variant for word in ("--set", pair)]
    done("train", "--pe", "tape", *settings(), *changed)
    folder = Run(here / "runs/mini/tape/seed-0")
    run = folder.record()
    decoder = trained_decoder(folder, run.name, run)
    for config in (decoder.config, run.config):
        assert (config.norm, config.loops, config.input_injection) == ("deepnorm", 2, True)
        assert config.attention_scale == "log"
    assert decoder.pe.setting.loops == 2
    grid = Grid.load(folder.grid_file())
    named = {key: grid.settings[key] for key in ("norm", "input_injection", "attention_scale")}
    words = preset_words(grid.preset, named)
    assert "norm=deepnorm, input_injection=True, attention_scale=log" in words


def test_grids_are_of_the_evaluation_seed_and_trainings_of_their_own() -> None:
    config = load_preset("mini").with_settings({"evaluation_seed": 3})
    assert config.evaluation_bucket().seed == 3 and config.bucket(5).seed == 5
    hashes = {
        config.evaluation_bucket().sha256(100),
        load_preset("mini").evaluation_bucket().sha256(100),
    }
    assert len(hashes) == 2
    # The hash of a recipe leaves out what changes no result: `groups`, and `steps` by design.
    assert config.with_settings({"groups": 2, "steps": 7}).sha256 == config.sha256
    assert config.with_settings({"clip": 1.0}).sha256 != config.sha256
