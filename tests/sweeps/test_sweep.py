"""Sweep files: the runs they list, and files that are refused."""

from pathlib import Path

import pytest

from tape_arith.arith.sweeps.sweep import Sweep, load_sweep, sweep_names
from tape_arith.models.locate import known_names
from tests.helpers.tiny_runs import refused

OUT = Path("runs")


def sweep(text: str) -> Sweep:
    Path("mine.toml").write_text('preset = "mini"\n' + text)
    return load_sweep("mine.toml")


@pytest.mark.parametrize("name", sweep_names())
def test_bundled_sweeps_are_sound(name: str) -> None:
    content = load_sweep(name)
    assert content.summary.endswith((".", "runs"))
    runs = content.runs(OUT)
    assert len({(str(run.name), run.seed, run.root) for run in runs}) == len(runs)


@pytest.mark.parametrize("name", [name for name in sweep_names() if name.startswith("tuned")])
def test_the_tuned_track_searches_the_same_for_all(name: str) -> None:
    content = load_sweep(name)
    usual = content.config.learning_rate
    assert content.learning_rates[0] == usual
    assert sorted(content.learning_rates) == pytest.approx([usual / 3, usual, 3 * usual], rel=2e-4)
    for run in content.runs(OUT):
        # Never among the preset's own runs, nor two values in one folder.
        assert run.root.parts[:2] == ("runs", name)
        assert float(run.root.name.split("=")[1]) == run.config.learning_rate


def test_groups_have_their_own_seeds_and_a_star_is_what_is_not_named(here: Path) -> None:
    content = sweep(
        '[[groups]]\nencodings = ["rope", "fire"]\nseeds = [0, 1]\n'
        '[[groups]]\nencodings = ["nope"]\nseeds = [1, 2]\n'
    )
    pairs = [(str(run.name), run.seed) for run in content.runs(OUT)]
    assert pairs == [("rope", 0), ("fire", 0), ("rope", 1), ("fire", 1), ("nope", 1), ("nope", 2)]
    starred = sweep('encodings = ["rope+yarn", "fire", "*", "abacus+rope"]\nseeds = [0]\n')
    names = [str(name) for name in starred.seeds]
    assert names[:2] == ["rope+yarn", "fire"] and names.count("fire") == 1
    assert set(known_names("encoding")) <= set(names)


GOOD = 'preset = "mini"\nencodings = ["rope"]\nseeds = [0]\n'
BAD = {
    "encodngs = []": "unknown key 'encodngs': did you mean 'encodings'?",
    'encodings = ["rope"]\nseeds = [0]': "'preset' is missing",
    GOOD.replace("mini", "minni"): "unknown preset 'minni': did you mean 'mini'?",
    GOOD.replace("rope", "rpoe"): "unknown encoding 'rpoe': did you mean",
    GOOD.replace('"rope"', '"rope", "rope"'): "rope is named twice",
    GOOD.replace('"rope"', '"rope", "nope@from=rope"'): "rope and nope@from=rope do not begin",
    GOOD.replace('["rope"]', "[]"): "'encodings' must have at least 1 item",
    GOOD.replace("[0]", "[-1]"): "'seeds.0' must be at least 0, not -1",
    'preset = "mini"': "give encodings and seeds",
    GOOD + "[[groups]]\nseeds = [0]": "'groups.0.encodings' is missing",
    GOOD + 'splits = ["hard"]': "unknown split 'hard'",
    GOOD + "[set]\nstep = 3": "unknown key 'step': did you mean 'steps'?",
    GOOD + "[tune]\nlearning_rate = [1e-3, 1e-3]": "names a value twice",
    GOOD + "[tune]\nlearning_rate = [1e-3, -1.0]": "'learning_rate' must be greater than 0",
    GOOD + "[tune]\nsteps = [1, 2]": "'tune.steps' is unknown",
    "preset = ": "is not TOML",
}


@pytest.mark.parametrize(("text", "message"), BAD.items(), ids=BAD.values())
def test_files_that_are_refused(here: Path, text: str, message: str) -> None:
    Path("mine.toml").write_text(text)
    line = refused("sweep", "mine.toml", "--dry-run")
    assert line.startswith("mine.toml") and message in line, line
    assert [path.name for path in here.iterdir()] == ["mine.toml"]
    assert "unknown sweep 'mini-al': did you mean 'mini-all'?" in refused("sweep", "mini-al")
