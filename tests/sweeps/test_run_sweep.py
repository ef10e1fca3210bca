"""Sweeps from end to end, at sizes that take a second: estimates, files and resuming."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from tape_arith.arith import lock
from tape_arith.arith.decoders.cost import training_flops, training_flops_a_token, training_tokens
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.options import AUTO, TrainOptions
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.request import Request
from tape_arith.arith.runs.run import Run
from tape_arith.arith.sweeps import estimate
from tape_arith.arith.sweeps import slots as slot_choice
from tape_arith.arith.sweeps.jobs import plan
from tape_arith.arith.sweeps.results import _is_family, choices, scored_grids
from tape_arith.arith.sweeps.sweep import load_sweep
from tests.helpers.child_processes import processes, start, wait, wait_until
from tests.helpers.made_grids import interrupt
from tests.helpers.sweeps import kept, sweep_file
from tests.helpers.tiny_runs import call, contents, done, refused, settings, untouched

FOLDER = Path("runs/sweeps/mine")


@pytest.fixture(scope="module")
def swept_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of rope and of two tapes, which are a family. Not to be changed."""
    folder = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done("sweep", sweep_file("tape,tape:width=4,rope"))
    return folder


@pytest.fixture
def swept(swept_once: Path, here: Path) -> Path:
    """A working folder with a copy of that sweep."""
    shutil.copytree(swept_once, here, dirs_exist_ok=True)
    return here


def test_an_estimate_counts_what_stands_in_front_of_problems() -> None:
    plain = load_preset("mini")
    padded = replace(plain, leading_bos=4)  # 0 to 4 of them, 2 on average
    tokens = plain.batch_size * plain.steps
    more = (training_tokens(padded) - training_tokens(plain)) / tokens
    assert more == pytest.approx(2, abs=0.1)
    name = parse("fire")
    assert training_flops_a_token(name, padded) != training_flops_a_token(name, plain)


@pytest.mark.parametrize(("slots", "threads", "shared"), [(1, None, 1), (2, 2, 2), (8, 1, 4)])
def test_an_estimate_shares_the_cores_out_as_the_slots_do(
    here: Path, monkeypatch: pytest.MonkeyPatch, slots: int, threads: int | None, shared: int
) -> None:
    received: list[int | None] = []

    def rate(run: Request, compute: object, threads: int | None) -> float:
        received.append(threads)
        return 1e-6

    monkeypatch.setattr(estimate, "seconds_per_flop", rate)
    monkeypatch.setattr(slot_choice, "cpu_threads", lambda: 4)
    monkeypatch.setattr(slot_choice, "usable_cores", lambda: 4.0)
    dry_run = done("sweep", sweep_file("rope"), "--dry-run", "--json", "--slots", slots)
    content = json.loads(dry_run.out)
    assert received == [threads]
    alone = sum(job["seconds"] for job in content["jobs"])
    assert content["left"]["seconds"] == pytest.approx(alone / shared, abs=0.1)
    assert alone > 1


def test_a_dry_run_counts_only_what_is_left(swept: Path) -> None:
    file = sweep_file("tape,tape:width=4,rope,nope")  # all done but nope
    content = json.loads(done("sweep", file, "--dry-run", "--json").out)
    waiting = [job for job in content["jobs"] if "/nope/" in job["id"]]
    assert [job["state"] for job in waiting] == ["to do"] * 2 and content["left"]["jobs"] == 2
    for key in ("tokens", "flops"):
        assert content["left"][key] == sum(job[key] for job in waiting)
        assert content["left"][key] < sum(job[key] for job in content["jobs"])


def test_a_dry_run_writes_nothing(here: Path) -> None:
    file = sweep_file("rope,tape+yarn,tape", "[0, 1]", num_layers=2)
    with untouched(here):
        printed = done("sweep", file, "--dry-run").out
        content = json.loads(done("sweep", file, "--dry-run", "--json").out)
    assert [path.name for path in here.iterdir()] == ["mine.toml"]
    assert "10 of 10" in printed and "rope were" in printed
    jobs = {job["id"]: job for job in content["jobs"]}
    assert len(jobs) == content["left"]["jobs"] == 10 and content["left"]["seconds"] > 0
    train = jobs["train/mine/mini/rope/seed-0"]
    # 4 steps of 8 problems of 2 and 2 digits: "a+b=c" and, of the end, what is read.
    assert 32 * 6 < train["tokens"] < 32 * 9
    score = jobs["score/mine/mini/rope/seed-0/grid"]
    assert 27 * 6 < score["tokens"] < 27 * 13
    # A step of training passes twice more through the decoder, backwards.
    a_token = {job["kind"]: job["flops"] / job["tokens"] for job in (train, score)}
    assert a_token["train"] == pytest.approx(3 * a_token["score"])
    # The price counts the operations of an encoding.
    assert jobs["train/mine/mini/tape/seed-0"]["flops"] > train["flops"]


def test_a_large_step_is_cut_to_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Config] = []

    def trainer(runner: object, bucket: object, config: Config, **_: object) -> SimpleNamespace:
        timed.append(config)
        return SimpleNamespace(timed_step=lambda: 6.0)

    for name in ("decoder_for", "Runner"):  # no weights of that size
        monkeypatch.setattr(estimate, name, lambda *_, **__: None)
    monkeypatch.setattr(estimate, "Trainer", trainer)
    paper = load_preset("paper-20")
    rate = estimate.seconds_per_flop(Request(parse("nope"), 0, "paper-20", paper, Path()), AUTO)
    (cut,) = timed
    assert cut == replace(paper, batch_size=cut.batch_size)
    step_flops = training_flops(cut) / cut.steps
    assert step_flops < 1.2e11 and rate == pytest.approx(6 / step_flops)


def test_the_price_of_the_paper_s_model(here: Path) -> None:
    """By the usual rule, 6 FLOPs a weight and token, less for logits of answers alone."""
    requests = load_sweep("paper-20").requests(Path("runs"))
    run = next(request for request in requests if str(request.name) == "nope")
    tokens, flops = plan([run], TrainOptions(), Path("runs"))[0].cost()
    assert tokens == pytest.approx(512 * 10_000 * (21 + 2 * 20 / 3 + 2.5), rel=0.02)
    assert flops == pytest.approx(6 * 117.4e6 * tokens, rel=0.05)


def test_a_sweep_makes_the_bits_of_its_commands(here: Path) -> None:
    file = sweep_file("rope,tape+yarn", "[1]", 'splits = ["evaluation", "carry"]')
    printed = done("sweep", file)
    stems = ("table", "table@carry")
    names = [f"{FOLDER}/{stem}.{ending}" for stem in stems for ending in ("md", "csv")]
    assert printed.out.splitlines() == names
    # People see the leaderboard, which is that of the command, in 80 columns.
    board = printed.err[printed.err.index("Leaderboard of mini") :]
    assert max(map(len, board.splitlines())) <= 80
    rows = json.loads(done("leaderboard", "--runs", "runs/mine", "--json").out)["sections"][0]
    assert [row["encoding"] for row in rows["rows"]] == ["rope", "tape+yarn"]
    assert all(f"\n{row['encoding']} " in board for row in rows["rows"])
    table = (FOLDER / "table.md").read_text()
    assert table.count("\n| ") == 3 and "tape-arith sweep mine.toml -->" in table
    run = "mini/tape/seed-1"
    done("train", "--pe", "tape", *settings(), "--seed", 1, "--out", "single", "--no-score")
    for split in ((), ("--split", "carry")):
        done("score", Path("single", run), "--with", "yarn", *split)
    assert kept(Path("runs/mine", run)) == kept(Path("single", run)) != {}
    assert not list(Path("runs").rglob(lock.NAME))
    # Again: nothing to do, nothing changes.
    before = contents(here)
    again = done("sweep", file)
    assert "all 6" in again.err and again.out == printed.out
    assert contents(here) == before
    # Stale tables go: of a split that the sweep has no more, then of other settings.
    stale = done("sweep", sweep_file("rope,tape+yarn", "[1]"))
    assert "table@carry.csv, table@carry.md" in stale.err
    refused_sweep = call("sweep", sweep_file("rope", "[1]", steps=6))
    assert refused_sweep.code == 2 and "nothing is" in refused_sweep.out
    assert {path.name for path in FOLDER.iterdir()} == {"mine.toml", "states"}


@pytest.mark.slow
def test_a_run_that_begins_from_another_comes_after_it(here: Path) -> None:
    begun = ["rope@from=rope", "tape@from=rope", "tape@only-positional-from=rope"]
    file = sweep_file(",".join(begun), "[0, 1]", num_layers=2)
    jobs = json.loads(done("sweep", file, "--dry-run", "--json").out)["jobs"]
    # Of each seed: rope is trained, not scored; three runs begin from it.
    assert sorted(job["kind"] for job in jobs) == ["score"] * 6 + ["train"] * 8
    done("sweep", file)
    assert Run(Path("runs/mine/mini/rope/seed-1")).state().trained
    assert not Path("runs/mine/mini/rope/seed-1/grid.json").exists()
    table = pd.read_csv(FOLDER / "table.csv")
    shown = zip(table.encoding, table.seeds, strict=True)
    assert {name: len(str(seeds).split()) for name, seeds in shown} == dict.fromkeys(begun, 2)
    tiny = (*settings(num_layers=2), "--out", "single")
    done("train", "--pe", "rope", *tiny, "--no-score")
    source = "single/mini/rope/seed-0"
    done("train", "--pe", "tape", "--init-from", source, "--only-positional", *tiny)
    run = "mini/tape@only-positional-from=rope/seed-0"
    assert kept(Path("runs/mine", run)) == kept(Path("single", run)) != {}
    assert "all 14" in done("sweep", file).err
    # Carried away without weights, it needs those that it began from no more than its own.
    for weights in Path("runs/mine").rglob("*.safetensors"):
        weights.unlink()
    assert "all 14" in done("sweep", file).err


def test_runs_without_weights_are_done(swept: Path) -> None:
    file = sweep_file("rope")
    run = Path("runs/mine/mini/rope/seed-0")
    for path in (run / "weights").iterdir():
        path.unlink()
    with untouched(swept / "runs/mine"):
        assert "all 2" in done("sweep", file).err
        # A way of scoring that is not there needs them; the run is not trained over its grids.
        result = call("sweep", sweep_file("rope,rope+yarn"))
        assert result.code == 2 and "final.safetensors" in result.err
        done("score", run)
        for command in (["score", "--fresh"], ["score", "--split", "carry"], ["export"], ["train"]):
            assert "final.safetensors" in refused(*command, run)


def test_a_run_that_differs_from_the_others_is_in_no_table(swept: Path) -> None:
    """An extended run cooled down later than one of the same config that never was."""
    done("train", "runs/mine/mini/rope/seed-0", "--steps", 6)
    splits = 'splits = ["evaluation", "carry"]'
    result = done("sweep", sweep_file("rope,fire,nope", "[0]", splits, steps=6))
    assert result.err.count("note: left out: rope") == 1
    assert "Left out: rope" in result.err  # below the leaderboard
    for table in ("table.csv", "table@carry.csv"):
        assert set(pd.read_csv(FOLDER / table).encoding) == {"fire", "nope"}


def test_the_tuned_track_chooses_in_distribution_only(here: Path) -> None:
    file = sweep_file("rope,fire", tune="[1e-3, 3e-3]")
    done("sweep", file)
    # Better in distribution, worse out of it: that one is taken.
    for rate, name, best in (
        ("0.001", "rope", True),
        ("0.003", "rope", False),
        ("0.001", "fire", False),
        ("0.003", "fire", True),
    ):
        path = Path(f"runs/mine/learning_rate={rate}/mini/{name}/seed-0/grid.json")
        assert Run(path.parent).record().config.learning_rate == float(rate)
        grid = Grid.load(path)
        grid.exact[:], grid.right_sum[:] = 0 if best else 3, 3
        grid.exact[:2, :2] = 3 if best else 2
        grid.first_wrong_sum[:] = 0
        grid.save(path)
    done("sweep", file)
    table = pd.read_csv(FOLDER / "table.csv")
    rates = zip(table.encoding, table.learning_rate, strict=True)
    assert sorted(rates) == [("fire", 0.003), ("rope", 0.001)]

    def chosen() -> list[str]:
        sweep = load_sweep(file)
        scored, _ = scored_grids(sweep, Path("runs"))
        return [panel.name for _, panel in choices(sweep, sweep.combinations[0].configs, scored)]

    # A search that is not the same for all is none.
    Path("runs/mine/learning_rate=0.003/mini/rope/seed-0/grid.json").unlink()
    assert chosen() == ["fire"]
    fire = Path("runs/mine/learning_rate=0.003/mini/fire/seed-0")
    interrupt(fire / "grid.json")
    assert not chosen()


@pytest.mark.slow
def test_a_grid_has_a_column_a_setting_and_no_mean_over_two_combinations(here: Path) -> None:
    grids = "[[grid]]\nnum_layers = [2]\nmlp_size = [16]\n[[grid]]\nmlp_size = [24]"
    more = f'splits = ["evaluation", "carry"]\n{grids}'
    file = sweep_file("fire,fire:init_l=9", "[0, 1]", more)
    Path(file).write_text(Path(file).read_text().removeprefix("# Mine."))
    with untouched(here):
        printed = done("sweep", file, "--dry-run").out
    assert printed.startswith("mine\n\n") and "24 of 24" in printed
    assert printed.split()[1:4] == ["encoding", "num_layers", "mlp_size"]
    done("sweep", file)
    keys = [(2, 16), (1, 24)]
    for right, (layers, size) in zip((1, 3), keys, strict=True):
        for seed in (0, 1):
            path = Path(f"runs/mine/num_layers={layers},mlp_size={size}/mini/fire/seed-{seed}")
            config = Run(path).record().config
            assert (config.num_layers, config.mlp_size) == (layers, size)
            scored = Grid.load(path / "grid.json")
            scored.exact[:], scored.right_sum[:], scored.first_wrong_sum[:] = right, 3, 0
            scored.save(path / "grid.json")
    done("sweep", file)
    frame = pd.read_csv(FOLDER / "table.csv")
    assert list(frame.columns[:4]) == ["encoding", "num_layers", "mlp_size", "seeds"]
    assert list(zip(frame.num_layers, frame.mlp_size, strict=True)) == [
        key for key in keys for _ in "ab"
    ]
    fire = frame[frame.encoding == "fire"]
    assert fire.all_cells.tolist() == pytest.approx([1 / 3, 1])
    assert set(frame.seeds) == {"0 1"} and fire.converged.tolist() == ["not converged", "yes"]
    # The usual sums tell whether those who meet hard ones have converged.
    carry = pd.read_csv(FOLDER / "table@carry.csv")
    assert carry[carry.encoding == "fire"].converged.tolist() == ["not converged", "yes"]
    states = json.loads(done("status", "mine", "--json").out)["jobs"]
    assert len(states) == 24 and {job["state"] for job in states} == {"trained", "scored"}
    # Figures are of one combination.
    assert (FOLDER / "ablations@num_layers=1,mlp_size=24.png").exists()
    where = refused("leaderboard", "--runs", "runs/mine")
    assert "runs/mine/num_layers=1,mlp_size=24, runs/mine/num_layers=2" in where
    done("leaderboard", "--runs", "runs/mine/num_layers=1,mlp_size=24")


def test_a_family_has_a_table_and_a_figure_of_its_own(swept: Path) -> None:
    printed = done("sweep", "mine.toml").out.split()
    names = ("table.md", "table.csv", "ablations.md", "ablations.csv", "ablations.png")
    assert printed == [str(FOLDER / name) for name in names]
    assert "(width=4)" in (FOLDER / "ablations.md").read_text()
    assert (FOLDER / "ablations.png").read_bytes().startswith(b"\x89PNG")  # drawn by the fixture
    # Stale files go: of encodings that are no family, then all if nothing is scored.
    removed = done("sweep", sweep_file("tape,rope")).err
    assert "ablations.csv, ablations.md, ablations.png" in removed
    stopped = call("sweep", sweep_file("nope"), "--time-limit", "0.000001s")
    assert stopped.code == 3 and "table.csv, table.md" in stopped.err
    assert {path.name for path in FOLDER.iterdir()} & {*names} == set()
    # Two classes of one file are none.
    head = "from tape_arith.models.encoding import PositionalEncoding\n"
    classes = (f"class {name}(PositionalEncoding):\n    pass\n" for name in "AB")
    Path("mine.py").write_text(head + "\n".join(classes))
    assert not _is_family(load_sweep(sweep_file("mine.py:A,mine.py:B")))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_is_passed_on_and_waited_for(
    here: Path, number: signal.Signals, code: int
) -> None:
    file = sweep_file("rope,fire", steps=100_000, num_problems=5_000)
    process = start(["sweep", file, "--slots", "2"])
    metrics = [Run(Path(f"runs/mine/mini/{n}/seed-0")).metrics_file for n in ("rope", "fire")]
    wait_until(lambda: all(path.exists() and path.stat().st_size for path in metrics), 120)
    states = {job["id"]: job for job in json.loads(done("status", "mine", "--json").out)["jobs"]}
    running = states["train/mine/mini/rope/seed-0"]
    assert running["state"] == "running" and 0 < running["step"] < running["steps"] == 100_000
    assert running["seconds_left"] > 0 and Path(running["log"]).exists() and running["loss"] > 0
    process.send_signal(number)
    returned, output = wait(process)
    assert returned == code, output
    assert "command continues" in output and "Traceback" not in output
    # Both were saved at the step's end.
    assert all((path.parent / "weights/latest.safetensors").exists() for path in metrics)
    assert processes() == [] and not list(Path("runs").rglob(lock.NAME))
