"""Sweep files: the runs they list, and files that are refused."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.sweeps.sweep import BUNDLED, Sweep, SweepFile, load_sweep, sweep_names
from tests.helpers.tiny_runs import refused

OUT = Path("runs")


def sweep(text: str) -> Sweep:
    Path("mine.toml").write_text('preset = "mini"\n' + text)
    return load_sweep("mine.toml")


@pytest.mark.parametrize("name", sweep_names())
def test_bundled_sweeps_are_sound(name: str) -> None:
    content = load_sweep(name)
    assert content.summary.endswith((".", "runs"))
    runs = content.requests(OUT)
    assert len({(str(run.name), run.seed, run.root, run.preset) for run in runs}) == len(runs)


@pytest.mark.parametrize("name", [name for name in sweep_names() if name.startswith("tuned")])
def test_the_tuned_track_searches_the_same_for_all(name: str) -> None:
    content = load_sweep(name)
    usual = load_preset(content.presets[0])
    (combination,) = content.combinations
    first, *others = combination.configs
    assert first == usual and len(others) == 2
    for config, share in zip(others, (1 / 3, 3), strict=True):
        assert config.learning_rate == pytest.approx(share * usual.learning_rate, rel=2e-4)
        assert replace(config, learning_rate=usual.learning_rate) == usual
    for run in content.requests(OUT):
        # Never among the preset's own runs, nor two values in one folder.
        assert run.root.parts[:2] == ("runs", name)
        assert float(run.root.name.split("=")[1]) == run.config.learning_rate


def test_groups_have_their_own_seeds_and_a_star_is_what_is_not_named(here: Path) -> None:
    content = sweep(
        '[[groups]]\nencodings = ["rope", "fire"]\nseeds = [0, 1]\n'
        '[[groups]]\nencodings = ["nope"]\nseeds = [1, 2]\n'
    )
    pairs = [(str(run.name), run.seed) for run in content.requests(OUT)]
    assert pairs == [("rope", 0), ("fire", 0), ("rope", 1), ("fire", 1), ("nope", 1), ("nope", 2)]
    starred = sweep('encodings = ["rope+yarn", "fire", "*", "abacus+rope"]\nseeds = [0]\n')
    names = [str(name) for name in starred.names]
    assert names[:2] == ["rope+yarn", "fire"] and names.count("fire") == 1
    assert set(known_names("encoding")) <= set(names)


def test_a_grid_is_every_combination_each_in_a_folder_of_its_own(here: Path) -> None:
    content = sweep(
        'encodings = ["rope", "fire"]\nseeds = [0, 1]\n[set]\nsteps = 7\n[[grid]]\n'
        "hidden_size = [128, 256]\nlearning_rate = [3e-4, 1]\n"
        "[[grid]]\nmlp_size = [512]\n"
    )
    mini = load_preset("mini")
    roots = {
        run.root.relative_to(OUT / "mine").as_posix(): run.config for run in content.requests(OUT)
    }
    assert len(content.requests(OUT)) == 5 * 2 * 2
    for hidden_size, learning_rate, mlp_size in (
        (128, 0.0003, 256),
        (128, 1.0, 256),
        (256, 0.0003, 256),
        (256, 1.0, 256),
        (128, 0.001, 512),
    ):
        root = f"hidden_size={hidden_size},learning_rate={learning_rate},mlp_size={mlp_size}"
        assert roots.pop(root) == replace(
            mini,
            steps=7,
            hidden_size=hidden_size,
            num_heads=hidden_size // 32,
            learning_rate=learning_rate,
            mlp_size=mlp_size,
        )
    assert not roots
    [wide] = sweep('encodings = ["rope"]\nseeds = [0]\n[set]\nhidden_size = 256\n').requests(OUT)
    assert wide.config == replace(mini, hidden_size=256, num_heads=8)


def test_the_readme_says_every_key_and_its_default() -> None:
    text = (BUNDLED.parent / "README.md").read_text("utf-8")
    table = re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", text, re.MULTILINE)
    fields = SweepFile.model_fields.items()
    assert [key for key, _ in table] == [field.alias or key for key, field in fields]
    for (_, default), (_, field) in zip(table, fields, strict=True):
        value = "required" if field.is_required() else field.default
        words = value if isinstance(value, str) else f"`{json.dumps(value)}`" if value else "none"
        assert default == words


GOOD = 'preset = "mini"\nencodings = ["rope"]\nseeds = [0]\n'
BAD = {
    GOOD + "[grid]\nlearning_rate = [0.5]\n[tune]\nlearning_rate = [0.1, 0.2]": "leave it out of",
    "encodngs = []": "unknown key 'encodngs': did you mean 'encodings'?",
    'encodings = ["rope"]\nseeds = [0]': "'preset' is missing",
    GOOD.replace("mini", "minni"): "unknown preset 'minni': did you mean 'mini'?",
    'presets = ["mini"]\n' + GOOD: "give preset or presets, not both",
    GOOD.replace("rope", "rpoe"): "unknown encoding 'rpoe': did you mean",
    GOOD.replace('"rope"', '"rope", "rope"'): "rope is named twice",
    GOOD.replace('"rope"', '"rope", "nope@from=rope"'): "rope and nope@from=rope do not start",
    GOOD.replace('["rope"]', "[]"): "'encodings' must have at least 1 item",
    GOOD.replace("[0]", "[-1]"): "'seeds.0' must be at least 0, not -1",
    'preset = "mini"': "give encodings and seeds",
    'preset = "mini"\n[[groups]]\nseeds = [0]': "[groups]: 'encodings' is missing",
    'preset = "mini"\n[[groups]]\nseed = [0]': "[groups]: unknown key 'seed': did you mean 'seeds'",
    GOOD + 'splits = ["hard"]': "unknown split 'hard'",
    GOOD + 'contrasts = ["rope - tape"]': "unknown encoding of this sweep 'tape'",
    GOOD + 'contrasts = ["rope"]': "a contrast reads A - B",
    GOOD + 'contrasts = ["fire - rope"]\n[grid]\nsteps = [2, 3]': "contrasts need one preset",
    GOOD + "[set]\nstep = 3": "unknown key 'step': did you mean 'steps'?",
    GOOD + "[tune]\nlearning_rate = [1e-3, 1e-3]": "learning_rate=0.001 is named twice",
    GOOD + "[tune]\nlearning_rate = [1e-3, -1.0]": "'learning_rate' must be greater than 0",
    GOOD + "[tune]\nsteps = [1, 2]": "[tune]: unknown key 'steps'",
    GOOD + "[grid]\nhiden_size = [8]": "unknown key 'hiden_size': did you mean 'hidden_size'?",
    GOOD + "[grid]\nhidden_size = 8": "'grid.0.hidden_size' must be",
    GOOD + "[grid]\nsteps = [0, 1]": "'steps' must be at least 1, not 0",
    GOOD + "[grid]\nsteps = [2, 3, 2]": "steps=2 is named twice",
    "preset = ": "is not TOML",
}


@pytest.mark.parametrize(("text", "message"), BAD.items(), ids=BAD.values())
def test_files_that_are_refused(here: Path, text: str, message: str) -> None:
    Path("mine.toml").write_text(text)
    line = refused("sweep", "mine.toml", "--dry-run")
    assert line.startswith("mine.toml") and message in line, line
    assert [path.name for path in here.iterdir()] == ["mine.toml"]


def test_names_that_are_refused(here: Path) -> None:
    """One reserves its logs for the command `run`."""
    assert "unknown sweep 'mini-al': did you mean 'mini-all'?" in refused("sweep", "mini-al")
    Path("run.toml").write_text(GOOD)
    assert refused("sweep", "run.toml", "--dry-run").endswith("under this name: rename the file")
