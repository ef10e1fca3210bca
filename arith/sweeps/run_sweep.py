"""A sweep from its file to its tables: planned, priced, run."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.build import check_trainable
from tape_arith.arith.runs.lock import lock_folder
from tape_arith.arith.runs.user_encodings import as_user_error
from tape_arith.arith.stopping import Stopper
from tape_arith.arith.sweeps.engines.engine import Ended, Engine
from tape_arith.arith.sweeps.engines.local import cores_a_slot, visible_gpus
from tape_arith.arith.sweeps.estimate import Cost, cost, in_words, kept_bytes, seconds_a_flop
from tape_arith.arith.sweeps.jobs import How, Job, finished, plan, write_jobs
from tape_arith.arith.sweeps.run_jobs import conduct_here
from tape_arith.arith.sweeps.scheduler import Outcome
from tape_arith.arith.sweeps.status import note_end
from tape_arith.arith.sweeps.sweep import Sweep, folder_of
from tape_arith.arith.sweeps.tables import write_tables
from tape_arith.arith.terminal import say
from tape_arith.models.names.backends import AUTO
from tape_arith.models.names.locate import USER_CODE_ERRORS, describe_error
from tape_arith.models.names.parse import Encoding

SCHEMA = 1


@dataclass(frozen=True)
class Prepared:
    """A sweep that can be run here: every name was built once, every job has its price."""

    sweep: Sweep
    out: Path
    slots: int
    jobs: list[Job]
    forecast: dict[str, Any]
    """What the jobs cost and about how long they take here: stable keys, for `--json`."""

    def as_text(self) -> str:
        """The forecast for people: a line an encoding, and what it comes to."""
        jobs = self.forecast["jobs"]
        names = dict.fromkeys(entry["encoding"] for entry in jobs)
        wide = max(len(name) for name in names)
        lines = [f"{self.sweep.name}: {self.sweep.summary}", ""]
        lines.append(f"{'encoding':<{wide}}  jobs done     tokens left  FLOPs left     time left")
        for name in names:
            mine = [entry for entry in jobs if entry["encoding"] == name]
            left = [entry for entry in mine if entry["state"] == "to do"]
            done = f"{len(mine) - len(left)} of {len(mine)}"
            tokens, flops = (sum(entry[key] for entry in left) for key in ("tokens", "flops"))
            timed = left and self.forecast["probe"]
            time = in_words(sum(entry["seconds"] for entry in left)) if timed else "-"
            lines.append(f"{name:<{wide}}  {done:>9}  {tokens:>14,}  {flops:>10.2g}  {time:>12}")
        return "\n".join([*lines, "", self.total()])

    def total(self) -> str:
        """What is left to do, in a line."""
        left, count = self.forecast["left"], len(self.jobs)
        if not left["jobs"]:
            return f"all {count} jobs are done"
        if self.forecast["probe"] is None:
            return (
                f"{left['jobs']} of {count} jobs to do: {left['tokens']:,} tokens, "
                f"{left['flops']:.2g} FLOPs (nothing was timed here); "
                f"{self.forecast['weights_bytes'] / 1e9:.2g} GB of weights"
            )
        return (
            f"{left['jobs']} of {count} jobs to do: {left['tokens']:,} tokens, "
            f"{left['flops']:.2g} FLOPs, about {in_words(left['seconds'])} with {self.slots} "
            f"slot{'s' * (self.slots > 1)} here (an estimate: {self.forecast['probe']} were timed, "
            f"the rest goes by FLOPs); {self.forecast['weights_bytes'] / 1e9:.2g} GB of weights"
        )

    @property
    def left(self) -> list[Job]:
        """The jobs that are not done, as far as the files here say."""
        done = finished(self.jobs)
        return [job for job in self.jobs if job.id not in done]

    def run(self, stopper: Stopper, sent: Engine | None = None) -> Outcome:
        """Run what is not done, here or where `sent` sends it. Raises Busy if another process runs
        this sweep."""
        folder = folder_of(self.sweep, self.out)
        say(f"{self.sweep.name}: {self.total()}")

        def ended(end: Ended) -> None:
            note_end(folder, end.job.id, end.code, end.reason, end.log)

        with lock_folder(folder, "sweep"):
            write_jobs(self.jobs, folder)
            return conduct_here(self.jobs, self.slots, folder, stopper, ended, sent=sent)

    def report(self, outcome: Outcome) -> dict[str, Any]:
        """What came of it, with stable keys for `--json`."""
        done = finished(self.jobs)
        failed = {end.job.id: end for end in outcome.failed}
        states = []
        for job in self.jobs:
            end = failed.get(job.id)
            state = "done" if job.id in done else "failed" if end else "to do"
            log = str(end.log) if end and end.log else None
            states.append({"id": job.id, "state": state, "reason": end and end.reason, "log": log})
        return {"schema": SCHEMA, "sweep": self.sweep.name, "jobs": states}

    def tables(self) -> list[Path]:
        """Write the tables of what is scored so far; where they are."""
        return write_tables(self.sweep, self.out, folder_of(self.sweep, self.out))


def prepared(
    sweep: Sweep, out: Path, how: How, slots: int | None = None, *, here: bool = True
) -> Prepared:
    """Plan and price a sweep, with as many slots as there are GPUs, or one, unless told. Where jobs
    do not run `here`, this machine's attention and speed say nothing.

    Errors: UsageError where a run could not be trained and scored here.
    """
    runs = sweep.runs(out)
    for config, name in dict.fromkeys((run.config, run.name) for run in runs):
        check_trainable(config, name, how.compute if here else AUTO)
    jobs = plan(runs, how, out, splits=sweep.splits)
    number = slots or max(1, len(visible_gpus()))
    return Prepared(sweep, out, number, jobs, _forecast(sweep, jobs, number, here))


def _timed(jobs: Sequence[Job], threads: int | None) -> tuple[Job | None, float]:
    """The first of `jobs` of which a few steps can be timed, and the seconds that a FLOP takes; an
    encoding that fails in them is left to its own jobs, which must not keep others from theirs."""
    first: dict[Encoding, Job] = {}
    for job in jobs:
        if job.kind in ("train", "score"):
            first.setdefault(job.run.name.encoding, job)
    for encoding, job in first.items():
        say(f"timing a few steps of {job.run.name} for the estimate")
        try:
            return job, seconds_a_flop(job, threads)
        except USER_CODE_ERRORS as error:
            reason = as_user_error(error, encoding) or describe_error(error)
            say(f"note: that cannot be timed: {reason}")
    return None, 0.0


def _forecast(sweep: Sweep, jobs: Sequence[Job], slots: int, here: bool) -> dict[str, Any]:
    done = finished(jobs)
    left = [job for job in jobs if job.id not in done]
    threads = cores_a_slot(slots) if slots > 1 else None  # one slot has what this process has
    probed, rate = _timed(left if here else [], threads)
    entries = []
    untold: set[str] = set()
    for job in jobs:
        try:
            price = cost(job)
        except Failure as error:  # of one encoding, whose jobs will say more
            if str(error) not in untold:
                say(f"note: {job.run.name} has no price: {error}")
            untold.add(str(error))
            price = Cost(0, 0.0)
        seconds = 0.0 if job.id in done else round(price.flops * rate, 1)
        entry: dict[str, Any] = {"id": job.id, "kind": job.kind, "encoding": str(job.run.name)}
        entry |= {"seed": job.run.seed, "state": "done" if job.id in done else "to do"}
        entries.append(entry | asdict(price) | {"seconds": seconds})
    to_do = [entry for entry in entries if entry["state"] == "to do"]
    # Slots beyond the GPUs, or the cores where there are none, wait for each other.
    side_by_side = min(slots, len(visible_gpus()) or os.cpu_count() or 1)
    seconds = sum(entry["seconds"] for entry in to_do) / side_by_side
    return {
        "schema": SCHEMA,
        "sweep": sweep.name,
        "summary": sweep.summary,
        "preset": sweep.preset,
        "slots": slots,
        "jobs": entries,
        "left": {
            "jobs": len(to_do),
            "tokens": sum(entry["tokens"] for entry in to_do),
            "flops": sum(entry["flops"] for entry in to_do),
            "seconds": round(seconds, 1),
        },
        "weights_bytes": kept_bytes(jobs),
        "probe": None if probed is None else f"steps of {probed.run.name.encoding}",
    }
