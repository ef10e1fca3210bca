"""Sweeps of tiny runs: their files, their jobs, and what they leave."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.request import Request
from tape_arith.arith.stopping import Stopper
from tape_arith.arith.sweeps.jobs import Job, Progress, plan
from tests.helpers.tiny_runs import SETTINGS, Result, contents


def sweep_file(
    encodings: str, seeds: str = "[0]", more: str = "", tune: str = "", **changed: object
) -> str:
    """Write a sweep of tiny runs to mine.toml; `tune` lists learning rates."""
    settings = "\n".join(f"{key} = {value}" for key, value in {**SETTINGS, **changed}.items())
    names = ", ".join(f'"{name}"' for name in encodings.split(","))
    head = f'# Mine.\npreset = "mini"\nencodings = [{names}]\nseeds = {seeds}\n{more}\n'
    tail = f"[tune]\nlearning_rate = {tune}\n" if tune else ""
    Path("mine.toml").write_text(f"{head}[set]\n{settings}\n{tail}")
    return "mine.toml"


def kept(root: Path) -> dict[str, bytes]:
    """Read what must not depend on interruptions: the grids and final weights of the runs."""
    return {
        name: content
        for name, content in contents(root).items()
        if "/grid" in name or name.endswith("final.safetensors")
    }


def jobs_of(result: Result) -> dict[str, str]:
    """Return the states of the jobs that `sweep --json` printed."""
    return {job["id"]: job["state"] for job in json.loads(result.out)["jobs"]}


@dataclass(frozen=True)
class MarkedJob(Job):
    """A job that is done if a file says so, whatever its run."""

    words: Sequence[str] = ()

    @property
    def argv(self) -> list[str]:
        return list(self.words)

    @property
    def mark(self) -> Path:
        return Path("marks", self.id.replace("/", "-"))

    def progress(self) -> Progress:
        return Progress(self.mark.exists())

    def cost(self) -> tuple[int, float]:
        return 0, 0.0

    def perform(self, stopper: Stopper) -> bool:
        self.finish()
        return True

    def finish(self) -> None:
        self.mark.parent.mkdir(exist_ok=True)
        self.mark.touch()


def marked_jobs(*names: str) -> list[MarkedJob]:
    """Make a train and a score job of each encoding."""
    config = load_preset("mini")
    runs = [Request(parse(name), 0, "mini", config, Path("runs")) for name in names]
    return [
        MarkedJob(job.id, job.request, job.options, job.depends, job.argv)
        for job in plan(runs, TrainOptions(), Path("runs"))
    ]
