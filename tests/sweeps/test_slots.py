"""How many jobs run side by side by default, with how many threads each, and what is said of it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.request import Request
from tape_arith.arith.sweeps import slots as module
from tape_arith.arith.sweeps.jobs import Job, plan
from tape_arith.arith.sweeps.slots import choose_slots
from tests.helpers.tiny_runs import SETTINGS

NAMES = ("rope", "fire", "tape", "nope", "alibi")


def machine(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
    """Pretend to be on a machine; `threads` is torch's number, by default one for each core."""
    now = SimpleNamespace(**{"cores": 2.0, "threads": 0, "memory": 64e9, "gpus": ""} | facts)
    monkeypatch.setattr(module, "usable_cores", lambda: now.cores)
    monkeypatch.setattr(module, "cpu_threads", lambda: now.threads or int(now.cores))
    monkeypatch.setattr(module, "available_memory", lambda: now.memory)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", now.gpus)


def jobs(runs: int, preset: str = "mini", **settings: str) -> list[Job]:
    config = load_preset(preset).with_settings(settings)
    planned = [Request(parse(name), 0, preset, config, Path("runs")) for name in NAMES[:runs]]
    return plan(planned, TrainOptions(), Path("runs"), data=Path("data"))


@pytest.mark.parametrize(
    ("facts", "todo", "count", "threads", "reason"),
    [
        ({}, jobs(3), 2, [1, 1, 2], "2 cores"),
        ({}, jobs(2, "small-20"), 2, [1, 1], "2 cores"),
        ({"cores": 8.0}, jobs(3), 3, [2, 2, 2], "8 cores"),
        # The cores are fewer than torch has threads, by a quota; or --threads asks for fewer.
        ({"threads": 64}, jobs(3), 2, [1, 1, 2], "2 cores"),
        ({"cores": 64.0, "threads": 1}, jobs(3), 1, [1, 1, 1], "one thread"),
        ({"cores": 0.5, "threads": 8}, jobs(2), 1, [1, 1], "one thread"),
        ({"cores": 4.0, "memory": 1.5e9}, jobs(4), 2, [2, 2, 2, 2], "1.5 GB of memory are free"),
        ({"memory": 0}, jobs(2), 1, [2, 2], "0.0 GB"),
        ({"memory": None}, jobs(2), 2, [1, 1], "2 cores"),
        ({}, jobs(2, **SETTINGS), 1, [2, 2], "they are so"),
        ({}, jobs(2, "paper-20"), 1, [2, 2], "one core would take too long for a step"),
        ({"gpus": "0,1,2"}, jobs(2, "paper-20"), 2, [1, 1], "GPUs"),
        ({"cores": 1.0, "gpus": "0,1"}, jobs(2), 2, [1, 1], "2 GPUs"),
        ({"gpus": "3"}, jobs(2), 1, [2, 2], "1 GPU"),
        ({"gpus": "-1"}, jobs(2), 2, [1, 1], "2 cores"),
        ({}, jobs(1), 1, [2], ""),
    ],
)
def test_slots_by_default(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    facts: dict[str, Any],
    todo: list[Job],
    count: int,
    threads: list[int],
    reason: str,
) -> None:
    machine(monkeypatch, **facts)
    chosen = choose_slots(todo)
    assert chosen.count == count
    for kind in ("train", "score"):
        assert [chosen.threads_of(job) for job in todo if job.kind == kind] == threads
    text = capsys.readouterr().err
    assert reason in text and text.count("\n") == bool(reason)
    if reason:
        assert text.startswith("one training" if count == 1 else f"{count} trainings")
        each = "one thread" if chosen.threads == 1 else f"{chosen.threads} threads"
        assert each in text and "--slots" in text


def test_requested_slots_share_the_threads(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(monkeypatch, cores=4.0)
    for requested, expected in ((1, [4] * 5), (2, [2] * 4 + [4]), (3, [1] * 3 + [2] * 2), (8, [1])):
        chosen = choose_slots(jobs(5), requested)
        assert chosen.count == requested
        trainings = [job for job in jobs(5) if job.kind == "train"]
        assert [chosen.threads_of(job) for job in trainings][: len(expected)] == expected
    assert capsys.readouterr().err == ""


def test_what_is_done_takes_no_slot(comparison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cores=16.0)
    monkeypatch.setattr(module, "LEAST_FLOPS", 0)
    tiny = [
        replace(job, request=replace(job.request, root=Path("runs"))) for job in jobs(5, **SETTINGS)
    ]
    chosen = choose_slots(tiny)  # rope and fire are done, tape lacks its own grid
    assert (chosen.count, chosen.threads) == (3, 5)
