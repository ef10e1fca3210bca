"""Define run.json, the document of a run."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from tape_arith.arith.documents import Count, NonNegative, Positive, Sha256, Strict, Text
from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.grids.facts import About, Budget
from tape_arith.arith.grids.grid import Grid
from tape_arith.arith.registry.names import Name, parse, source_hashes, task_location
from tape_arith.arith.runs.config import EXECUTION, Config, Policy, Schedule
from tape_arith.arith.runs.preset import changed_settings, is_preset
from tape_arith.arith.tasks.load import load_task, task_hash

TASK = "task "
"""Prefix of a task's name in `RunRecord.sources`, because an encoding may have the same name."""


def run_sources(name: Name, config: Config) -> dict[str, str]:
    """Hash the file of the task and of each part of the encoding that is not built in.

    Raises UsageError if one is unknown or cannot be read.
    """
    tasks = {f"{TASK}{name}": sha256 for name, sha256 in task_hash(config.task).items()}
    return source_hashes(name.encoding) | tasks


@dataclass(frozen=True)
class InitFrom(Strict):
    """The finished run from whose final weights another run began.

    `steps` and `problems` include those of all runs before it.
    """

    encoding: Text
    seed: Count
    config_sha256: Sha256
    steps: Count
    problems: Count
    weights_sha256: Sha256


@dataclass(frozen=True)
class Machine(Strict):
    """The machine and software of a call of `train`."""

    tape_arith: Text
    commit: Text | None
    command: str
    python: Text
    torch: Text
    device: Text
    hardware: Text
    dtype: Text
    threads: Count
    attention: Text | None
    compiled: bool
    system: Text
    processes: Positive = 1


@dataclass(frozen=True)
class RunRecord(Strict):
    """The content of run.json, which defines a run and says where it was trained.

    config         the recipe; `config.steps` is the present budget
    first_steps    the first budget, which fixed the warm-up
    data           hash of the dataset that the run began on; None: problems are made as needed,
                   which gives the same run
    version        version of tape-arith
    sources        SHA-256 of each file of `run_sources`
    init_from      None for a run with random first weights
    about          what the encoding is and costs; None in runs of versions before 0.9
    machines       where it was trained: one entry per change, the last call of `train` last
    seconds        duration of each stage, as "train" or "score+yarn"
    on_nonfinite   policy for a loss or gradient that is not finite
    skipped_steps  number of steps of a trained run that this policy left out
    """

    kind: ClassVar[str] = "run"
    remedy: ClassVar[str] = "put back a whole copy, or train the run again with --fresh"

    encoding: Text
    seed: Count
    preset: Text
    config: Config
    task_version: Count
    first_steps: Positive
    data: Sha256 | None
    version: Text
    sources: dict[Text, Sha256] = field(default_factory=dict)
    init_from: InitFrom | None = None
    about: About | None = None
    on_nonfinite: Policy = "stop"
    skipped_steps: Count = 0
    machines: tuple[Machine, ...] = ()
    seconds: dict[Text, NonNegative] = field(default_factory=dict)

    @cached_property
    def name(self) -> Name:
        """The parsed encoding. Raises UsageError if its file is not on this machine."""
        return parse(self.encoding)

    @property
    def machine(self) -> Machine | None:
        """Where the run was last trained; None if that is not recorded."""
        return self.machines[-1] if self.machines else None

    @property
    def total_steps(self) -> int:
        """Steps of this run and of the earlier runs that its weights come from."""
        return self.config.steps + (self.init_from.steps if self.init_from else 0)

    @property
    def problems_seen(self) -> int:
        """Number of problems of the run's stream, from the first on, that training has seen."""
        return self.config.problems_seen(self.init_from.problems if self.init_from else 0)

    @property
    def schedule(self) -> Schedule:
        return self.config.schedule(self.first_steps)

    @property
    def budget(self) -> Budget:
        """Facts that must be equal in two results that are compared."""
        origin = self.init_from  # its facts are equal for all seeds
        return Budget(
            steps=self.config.steps,
            first_steps=self.first_steps,
            batch_size=self.config.batch_size,
            config_sha256=self.config.sha256,
            steps_before=None if origin is None else origin.steps,
            config_before=None if origin is None else origin.config_sha256[:12],
        )

    def has_scored(self, grid: Grid) -> bool:
        """Tell whether `grid` belongs to this run at its present budget."""
        return (grid.encoding, grid.seed, grid.budget) == (self.encoding, self.seed, self.budget)

    @property
    def settings(self) -> dict[str, int | float | str]:
        """Settings that differ from the preset's, and the steps of the run before this one.

        For an unknown preset, as one of another version, no difference is listed.
        """
        before = {} if self.init_from is None else {"steps_before": self.init_from.steps}
        known = is_preset(self.preset)
        changed = changed_settings(self.config, self.preset) if known else {}
        return before | {key: value for key, value in changed.items() if key not in EXECUTION}

    @property
    def is_current(self) -> bool:
        """Tell whether the task and the encoding's files are unchanged since the training.

        A missing file counts as unchanged, so that results can be read without it.
        """
        with suppress(UsageError):
            if self.sources != run_sources(self.name, self.config):
                return False
        with suppress(UsageError):
            return self.task_version == load_task(self.config.task).version
        return True


def check_can_continue(path: Path, record: RunRecord) -> None:
    """Check that this installation has the same task and encoding as the run at `path`.

    Raises UsageError if either differs; Failure if its file is inside the run's folder, because
    code that comes with a run is never executed.
    """
    try:
        sources = run_sources(record.name, record.config)
        places = [*record.name.encoding.locations(), task_location(record.config.task)]
    except UsageError as error:
        raise UsageError(
            f"{path} was trained with {record.encoding} on {record.config.task}: {error}"
        ) from None
    for file in (place.file for place in places):
        if file is not None and file.resolve().is_relative_to(path.resolve()):
            raise Failure(f"{path} brings its own code ({file}), which is never executed")
    for part in sorted(sources.keys() | record.sources.keys()):
        before, now = record.sources.get(part, "none"), sources.get(part, "none")
        if before != now:
            raise UsageError(
                f"{path} was trained with another {part} (SHA-256 {before[:12]}, now {now[:12]}): "
                "put that file back, or train again with --fresh or --runs"
            )
    task = load_task(record.config.task)
    if record.task_version != task.version:
        raise UsageError(
            f"{path} was trained on version {record.task_version} of {task.name}, and this "
            f"tape-arith makes version {task.version}: continue with tape-arith {record.version}, "
            "or train it again, with --fresh or into another folder with --runs"
        )
