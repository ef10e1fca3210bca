"""What an engine is, and the engines by name.

A file of this folder is an engine: its name is the one after --engine, and the keyword-only
arguments of its last class are its options. No torch here.
"""

import re
from pathlib import Path
from typing import NamedTuple, Protocol

from tape_arith.arith.errors import UsageError
from tape_arith.arith.sweeps.engines.worker import JobState, WorkItem, write_state
from tape_arith.arith.sweeps.jobs import Job, log_file
from tape_arith.models.names.locate import Location, in_folder, select
from tape_arith.models.names.parse import NamePart, read_options

LOCAL = "local"
UNLIMITED = 1_000_000
"""More jobs than anybody submits."""
_NO_ENGINES = ("engine", "worker")


class Ended(NamedTuple):
    """How a job ended: exit code (75: run it again), last message, log if it has one, seconds."""

    job: Job
    code: int
    reason: str = ""
    log: Path | None = None
    seconds: float = 0.0


class Engine(Protocol):
    """Runs jobs at the same time, none of which waits for another."""

    @property
    def free(self) -> int:
        """How many more jobs can be submitted now."""
        ...

    def submit(self, job: Job, seconds: float | None) -> None:
        """Start `job`, which is to stop in good order after `seconds`."""
        ...

    def wait(self, seconds: float) -> list[Ended]:
        """Wait up to `seconds` for a job to end; return those that ended since the last call."""
        ...

    def stop(self) -> None:
        """Ask every running job to stop in good order; `wait` still returns how they end."""
        ...


def engine_names() -> list[str]:
    """The engines, as after --engine."""
    return sorted(location.name for location in _locations())


def parse_engine(text: str) -> NamePart:
    """Parse `name[:key=value...]`, where a value may hold colons. Raises UsageError.

    >>> str(parse_engine("slurm:time=24:00:00:partition=gpu"))
    'slurm:partition=gpu:time=24:00:00'
    """
    name, *settings = re.split(r":(?=\w+=)", text.strip())
    declared = select("engine", _locations(), name).declaration()
    options = read_options(text, settings, declared)
    return NamePart(declared.name, tuple(sorted(options.items())))


def remote_engine(text: str, slots: int | None, folder: Path) -> Engine | None:
    """Build the engine that `text` names; None for this machine.

    It takes up to `slots` jobs at a time (None: any number), with logs and states in `folder`.
    Raises UsageError if what the engine needs is not here.
    """
    part = parse_engine(text)
    if part.name == LOCAL:
        return None
    location = select("engine", _locations(), part.name)
    engine_class = getattr(location.load(), location.declaration().class_name)
    reason = engine_class.why_unavailable()
    if reason is not None:
        raise UsageError(f"engine {part.name}: {reason}")
    engine: Engine = engine_class(slots, folder, **dict(part.options))
    return engine


def hand_over(job: Job, folder: Path, engine: str, token: str, cores: int) -> WorkItem:
    """Make `job` a work item for another machine that sees the same files; its state is "queued".

    Raises Failure.
    """
    log = log_file(folder, job.id).absolute()
    write_state(log, JobState(engine, token))
    return WorkItem(job.argv, cores, str(Path.cwd()), str(log), engine, token)


def _locations() -> list[Location]:
    locations = in_folder(Path(__file__).parent, __name__.rpartition(".")[0])
    return [location for location in locations if location.name not in _NO_ENGINES]
