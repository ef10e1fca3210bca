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


def test_files_are_named_relative_to_the_sweep_s(here: Path) -> None:
    """The copy that `status` reads is elsewhere and finds the same files."""
    own = BUNDLED.parents[2] / "models" / "encodings"
    Path("lab").mkdir()
    for name in ("theirs.py", "lab/mine.py"):
        Path(name).write_text((own / "nope.py").read_text())
    text = 'preset = "mini"\nencodings = ["mine.py:NoPE", "theirs.py:NoPE", "rope"]\nseeds = [0]\n'
    Path("lab/both.toml").write_text(text)
    content = load_sweep("lab/both.toml")
    assert [str(name) for name in content.names] == ["lab/mine.py:NoPE", "theirs.py:NoPE", "rope"]
    Path("copy").mkdir()
    Path("copy/both.toml").write_text(content.text)
    assert load_sweep("copy/both.toml").names == content.names


def test_groups_have_their_own_seeds_and_a_star_is_what_is_not_named(here: Path) -> None:
    content = sweep(
        '[[groups]]\nencodings = ["rope", "fire"]\nseeds = [0, 1]\n'
        '[[groups]]\nencodings = ["nope"]\nseeds = [0, 2]\n'
    )
    pairs = [(str(run.name), run.seed) for run in content.requests(OUT)]
    assert pairs == [("rope", 0), ("fire", 0), ("rope", 1), ("fire", 1), ("nope", 0), ("nope", 2)]
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


def test_names_that_are_refused(here: Path) -> None:
    """It reserves its logs for the command `run`."""
    Path("run.toml").write_text(GOOD)
    assert "rename" in refused("sweep", "run.toml", "--dry-run")
