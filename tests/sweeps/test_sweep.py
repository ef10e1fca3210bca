"""Sweep files: what they say, what is refused, and the jobs that come of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tape_arith.arith.sweeps import jobs as planning
from tape_arith.arith.sweeps.jobs import Job, JobOptions, done_jobs, plan
from tape_arith.arith.sweeps.sweep import Sweep, load_sweep, sweep_names
from tape_arith.models.backends import AttentionChoice
from tape_arith.models.names.locate import known_names
from tests.helpers.sealing import replaced, resealed
from tests.helpers.tiny_runs import SETTINGS, done, refused

TINY = "\n".join(f"{key} = {value}" for key, value in SETTINGS.items())
OUT = Path("runs")


def written(text: str, name: str = "mine.toml") -> str:
    Path(name).write_text(text)
    return name


def sweep(text: str) -> Sweep:
    return load_sweep(written('preset = "mini"\n' + text))


@pytest.mark.parametrize("name", sweep_names())
def test_those_that_come_along_are_sound(name: str) -> None:
    content = load_sweep(name)
    assert content.summary.endswith((".", "runs"))
    runs = content.runs(OUT)
    assert len({(str(run.name), run.seed, run.root) for run in runs}) == len(runs)


def test_mini_all_has_every_encoding_and_five_seeds_of_the_paper_s() -> None:
    content = load_sweep("mini-all")
    seeds: dict[str, list[int]] = {}
    for run in content.runs(OUT):
        seeds.setdefault(str(run.name), []).append(run.seed)
    assert seeds.keys() >= {*known_names("encoding"), "abacus+fire", "abacus+rope"}
    assert seeds.keys() >= {"rope+pi", "rope+ntk", "rope+ntk-dynamic", "tape+pi", "tape+ntk"}
    paper = {"nope", "rope", "rand-rope", "fire", "tape", "tape-heads", "rope+yarn", "tape+yarn"}
    assert {name for name, of in seeds.items() if of == [0, 1, 2, 3, 4]} == paper
    assert {tuple(of) for name, of in seeds.items() if name not in paper} == {(0, 1, 2)}


@pytest.mark.parametrize("name", [name for name in sweep_names() if name.startswith("tuned")])
def test_the_tuned_track_searches_the_same_for_all(name: str) -> None:
    content = load_sweep(name)
    usual = content.config.learning_rate
    assert content.tuned == "learning_rate" and content.values[0] == usual
    assert sorted(content.values) == pytest.approx([usual / 3, usual, 3 * usual], rel=2e-4)
    runs = content.runs(OUT)
    # Never among the preset's own runs, nor two values in one folder.
    assert all(run.root.parts[:2] == ("runs", name) for run in runs)
    for one in runs:
        assert float(one.root.name.split("=")[1]) == one.config.learning_rate
    assert {run.settings.keys() <= {"learning_rate"} for run in runs} == {True}


def test_seeds_are_outermost_and_groups_have_their_own(here: Path) -> None:
    content = sweep(
        '[[groups]]\nencodings = ["rope", "fire"]\nseeds = [0, 1]\n'
        '[[groups]]\nencodings = ["nope"]\nseeds = [1, 2]\n'
    )
    pairs = [(str(run.name), run.seed) for run in content.runs(OUT)]
    assert pairs == [("rope", 0), ("fire", 0), ("rope", 1), ("fire", 1), ("nope", 1), ("nope", 2)]
    other = sweep('order = "encodings"\nencodings = ["rope", "fire"]\nseeds = [0, 1]\n')
    pairs = [(str(run.name), run.seed) for run in other.runs(OUT)]
    assert pairs == [("rope", 0), ("rope", 1), ("fire", 0), ("fire", 1)]


def test_a_star_is_what_is_not_named(here: Path) -> None:
    content = sweep('encodings = ["rope+yarn", "fire", "*", "abacus+rope"]\nseeds = [0]\n')
    names = [str(name) for name in content.names]
    assert names[:2] == ["rope+yarn", "fire"] and names.count("fire") == 1
    assert set(known_names("encoding")) <= set(names)


def test_settings_of_its_own_have_a_folder_of_their_own(here: Path) -> None:
    (run,) = sweep('encodings = ["rope"]\nseeds = [3]\n[set]\nsteps = 7\n').runs(OUT)
    assert run.config.steps == 7 and run.settings == {"steps": 7}
    assert run.folder.path == Path("runs/mine/mini/rope/seed-3")


GOOD = 'preset = "mini"\nencodings = ["rope"]\nseeds = [0]\n'
BAD = {
    "encodngs = []": "unknown key 'encodngs': did you mean 'encodings'?",
    'encodings = ["rope"]\nseeds = [0]': "'preset' is missing",
    GOOD.replace("mini", "minni"): "unknown preset 'minni': did you mean 'mini'?",
    GOOD.replace("rope", "rpoe"): "unknown encoding 'rpoe': did you mean",
    GOOD.replace('"rope"', '"rope", "rope"'): "rope is named twice",
    GOOD.replace('"rope"', '"rope", "nope@from=rope"'): "rope and nope@from=rope do not begin",
    GOOD.replace('"rope"', '"*", "tape@from=rope"'): "do not begin alike",
    GOOD.replace('["rope"]', "[]"): "'encodings' must have at least 1 item",
    GOOD.replace("[0]", "[-1]"): "'seeds.0' must be at least 0, not -1",
    'preset = "mini"': "give encodings and seeds",
    GOOD + "[[groups]]\nseeds = [0]": "'groups.0.encodings' is missing",
    'preset = "mini"\n[[groups]]\nencodings = ["rope"]\nseed = [0]': "'groups.0.seed' is unknown",
    GOOD + 'splits = ["hard"]': "unknown split 'hard'",
    GOOD + "[set]\nstep = 3": "unknown key 'step': did you mean 'steps'?",
    GOOD + "[tune]\nlearning_rate = [1e-3, 1e-3]": "must be a list of several values",
    GOOD + "[tune]\nlearning_rate = [1e-3, -1.0]": "learning_rate must be finite and above 0",
    "preset = ": "is not TOML",
}
# One ranked table would hold several budgets or evaluation sets.
BAD |= {
    f"{GOOD}[tune]\n{key} = [1, 2]": f"tune takes learning_rate alone, not {key}: "
    for key in ("steps", "evaluation_seed", "weight_decay")
}


@pytest.mark.parametrize("number", range(len(BAD)))
def test_files_that_are_refused(here: Path, number: int) -> None:
    text, message = list(BAD.items())[number]
    file = written(text)
    line = refused("sweep", file, "--dry-run")
    assert line.startswith(file) and message in line, line
    assert [path.name for path in here.iterdir()] == ["mine.toml"]


def test_sweeps_that_are_not_there(here: Path) -> None:
    assert "unknown sweep 'mini-al': did you mean 'mini-all'?" in refused("sweep", "mini-al")
    assert "cannot read none.toml" in refused("sweep", "none.toml")


# Jobs


def jobs(text: str, options: JobOptions | None = None) -> dict[str, Job]:
    content = sweep(text)
    made = plan(content.runs(OUT), options or JobOptions(), OUT, content.splits)
    ids = [job.id for job in made]
    assert len(set(ids)) == len(ids)
    for job in made:  # each after what it depends on
        assert all(ids.index(key) < ids.index(job.id) for key in job.depends)
    return {job.id: job for job in made}


def test_two_ways_of_scoring_share_a_training(here: Path) -> None:
    made = jobs('encodings = ["tape+yarn", "tape"]\nseeds = [0]\n')
    assert {key: job.depends for key, job in made.items()} == {
        "train/mini/tape/seed-0": (),
        "score/mini/tape/seed-0/grid+yarn": ("train/mini/tape/seed-0",),
        "score/mini/tape/seed-0/grid": ("train/mini/tape/seed-0",),
    }


def test_a_job_s_words_are_those_of_the_command_line(here: Path) -> None:
    """What another process is message gives the run that this one would make."""
    text = f'encodings = ["tape:width=8+yarn"]\nseeds = [2]\n[set]\n{TINY}\n'
    made = jobs(text, JobOptions(AttentionChoice("eager"), True, Path("data"), 1))
    assert [job.kind for job in made.values()] == ["generate", "train", "score"]
    assert not done_jobs(list(made.values()))
    for job in made.values():
        assert all(isinstance(word, str) for word in job.argv)
        done(*job.argv)
        assert job.kind == "generate" or job.done(), job.id
    assert len(done_jobs(list(made.values()))) == len(made)
    (train,) = (job for job in made.values() if job.kind == "train")
    record = train.run.folder.record()
    assert (record.config, record.seed) == (train.run.config, 2) and record.data is not None


def test_the_list_of_jobs(here: Path) -> None:
    jobs_planned = list(jobs('encodings = ["rope"]\nseeds = [0]\n').values())
    planning.write_jobs(jobs_planned, Path("there"))
    lines = list(planning.read_jobs(Path("there")))
    assert lines == [job.line() for job in jobs_planned]
    assert (lines[0].id, lines[0].depends) == ("train/mini/rope/seed-0", [])
    assert " ".join(lines[0].argv) == "train --pe rope --preset mini --seed 0 --out runs --no-score"


def test_what_is_done_is_read_from_the_files(comparison: Path) -> None:
    content = load_sweep(
        written(f'preset = "mini"\nencodings = ["rope"]\nseeds = [0]\n[set]\n{TINY}\n')
    )
    run = content.runs(OUT)[0]
    train, score = plan([replace(run, root=OUT)], JobOptions(), OUT)
    assert score.done() and train.done()
    # Carried away without its weights it is as done as before.
    for file in (score.folder.path / "weights").iterdir():
        file.unlink()
    assert score.done() and train.done()
    # A grid of another run, budget or way of scoring in its place does not count.
    grid = score.folder.path / "grid.json"
    text = grid.read_text()
    for old, new in (
        ('"rope"', '"fire"'),
        ('"seed": 0', '"seed": 1'),
        ('"steps": 4', '"steps": 5'),
        ('"extrapolation": null', '"extrapolation": "yarn"'),
    ):
        assert old in text
        grid.write_bytes(resealed(text.replace(old, new).encode()))
        assert not score.done(), (old, new)
    grid.write_text(text[:50])
    assert not score.done()
    grid.write_text(text)
    replaced(score.folder.record_file, '"learning_rate": 0.001', '"learning_rate": 0.1')
    assert not score.done() and done_jobs([train, score]) == set()
