"""Hours of a plan on a named GPU: from what was measured there, and from nothing else."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tape_arith.arith.decoders.cost import training_flops_a_token, training_tokens
from tape_arith.arith.machine import ROOT
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.sweeps import estimate, gpus
from tape_arith.arith.terminal import duration
from tests.helpers.tiny_runs import done, untouched

PLAN = ["run", "--preset", "paper-20", "--dry-run", "--on", "h200"]
STEPS = gpus.measured_gpu("H200").steps


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is timed here."""
    monkeypatch.delattr(estimate, "seconds_per_flop")


def test_every_rate_is_in_a_document_of_the_bench() -> None:
    rates = tomllib.loads(Path(gpus.__file__).with_name("gpus.toml").read_text("utf-8"))
    documents = [json.loads(path.read_text("utf-8")) for path in ROOT.glob("results/bench/*.json")]
    for gpu in rates.values():
        measured = {
            line["name"]: line["value"]
            for document in documents
            if document["environment"]["hardware"] == gpu["name"]
            and f"--preset {gpu['preset']} " in document["environment"]["command"]
            for line in document["measurements"]
            if line["stage"] == "train"
        }
        for encoding, seconds in gpu["steps"].items():
            assert seconds == pytest.approx(measured[f"{encoding}: a step"], abs=5e-5)


def costs(*argv: str) -> dict[str, dict[str, Any]]:
    """Return the estimated seconds of each job, by kind and encoding, and what is left."""
    content = json.loads(done("sweep", *argv, "--dry-run", "--json", "--on", "h200").out)
    seconds: dict[str, dict[str, Any]] = {"train": {}, "score": {}}
    for job in content["jobs"]:
        seconds[job["kind"]][job["encoding"]] = job["seconds"]
    missing = [name for name, value in seconds["train"].items() if value is None]
    assert set(missing) == set(content["not_measured"])
    return seconds | {"left": content["left"]}


def sweep_of(preset: str, *encodings: str) -> str:
    text = f'preset = "{preset}"\nencodings = {[*encodings]}\nseeds = [0]\n'
    Path("mine.toml").write_text(text)
    return "mine.toml"


def test_a_training_takes_its_measured_steps(here: Path) -> None:
    file = sweep_of("paper-20", *STEPS, "nope", "rope+yarn", "alibi")
    with untouched(here):
        seconds = costs(file)
    for name, step in STEPS.items():
        assert seconds["train"][name] == pytest.approx(10_000 * step, rel=1e-4)
    assert {name for name, value in seconds["train"].items() if value is not None} == {*STEPS}
    scored = {name for name, value in seconds["score"].items() if value is not None}
    assert scored == {*STEPS, "rope+yarn"}


def test_longer_problems_go_by_flops_of_the_same_encoding(here: Path) -> None:
    trained = costs(sweep_of("paper-40", "rope", "tape", "nope"))["train"]
    for name in ("rope", "tape"):
        short, long = load_preset("paper-20"), load_preset("paper-40")
        flops = [training_flops_a_token(parse(name), c) * training_tokens(c) for c in (short, long)]
        assert trained[name] == pytest.approx(1e4 * STEPS[name] * flops[1] / flops[0], rel=1e-3)
        assert 2 < trained[name] / (1e4 * STEPS[name]) < 6
    assert trained["nope"] is None


def test_gpus_work_side_by_side_but_a_run_has_one(here: Path) -> None:
    file = sweep_of("paper-20", "rope", "fire")
    one, two = (costs(file, *slots) for slots in ([], ["--slots", "2"]))
    runs = [one["train"][name] + one["score"][name] for name in ("rope", "fire")]
    assert one["left"]["seconds"] == pytest.approx(sum(runs))
    assert two["left"]["seconds"] == pytest.approx(runs[1]) and runs[1] > runs[0]
    printed = done(*PLAN, "--pe", "rope,nope,fire,kerple-log").out
    assert "on 1 NVIDIA H200 for 2 of 4 encodings (an" in printed
    assert "the others were not measured at these sizes: nope, kerple-log" in printed


def test_other_sizes_and_batches_are_not_measured(here: Path) -> None:
    for changed in ("num_layers=8", "batch_size=256", "loops=2"):
        printed = done(*PLAN, "--pe", "rope", "--set", changed).out
        assert "not measured at these sizes: rope" in printed and "minutes" not in printed
    assert not [*here.iterdir()]


def test_run_estimates_as_a_sweep_does(here: Path) -> None:
    printed = done(*PLAN, "--pe", "rope,tape").out
    left = costs(sweep_of("paper-20", "rope", "tape"))["left"]
    assert f"5 of 5 jobs to do: {left['tokens']:,} tokens" in printed  # a dataset is one more
    assert f"{duration(left['seconds'])} on 1 NVIDIA H200 (an estimate: " in printed
    assert [file.name for file in here.iterdir()] == ["mine.toml"]
