"""What a run is: what stands in its run.json. No torch here."""

from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from arith.checking import digest, known_keys, mapping, text, whole
from arith.data.task import load_task
from arith.errors import Failure, UsageError
from arith.suite.presets import load_preset, presets
from arith.training.config import Config
from arith.training.nonfinite import checked_policy
from arith.training.schedule import Schedule
from models.names.locate import locate
from models.names.parse import Name, parse, source_hashes

FIRST_TASK_VERSION = 1
"""Of the runs that do not say: until they did, there was no other."""


@dataclass(frozen=True)
class InitFrom:
    """The finished run from whose final weights another began: what it was, the steps and problems
    that it was trained for (and the one that it began from itself), the hash of its weights."""

    encoding: str
    seed: int
    config_sha256: str
    steps: int
    problems: int
    weights_sha256: str

    @classmethod
    def of(cls, content: dict[str, Any]) -> "InitFrom":
        """What stands in run.json. Errors: ValueError."""
        known_keys(content, {field.name for field in fields(cls)}, frozenset())
        return cls(
            encoding=text(content["encoding"], "init_from.encoding"),
            config_sha256=digest(content["config_sha256"], "init_from.config_sha256"),
            weights_sha256=digest(content["weights_sha256"], "init_from.weights_sha256"),
            **{n: whole(content[n], f"init_from.{n}") for n in ("seed", "steps", "problems")},
        )


@dataclass(frozen=True)
class RunRecord:
    """What a run is: run.json. `steps` in `config` is the present budget, `first_steps` the one
    it began with (which fixed the warm-up); `task_version` that of the problems it is trained on;
    `data` the hash of the dataset it began on, None where problems are made as needed: both give
    the same run; `version` that of tape-arith; `sources` the hash of the file of each part of the
    encoding that is the user's or an installed package's; `init_from` whose weights it began from,
    None where it drew its own; `on_nonfinite` what becomes of a step whose loss or gradient is not
    finite, and `skipped_steps` how many were left out for that, of a run that is trained."""

    encoding: str
    seed: int
    preset: str
    config: Config
    task_version: int
    first_steps: int
    data: str | None
    version: str
    sources: dict[str, str] = field(default_factory=dict)
    init_from: InitFrom | None = None
    on_nonfinite: str = "stop"
    skipped_steps: int = 0

    @cached_property
    def name(self) -> Name:
        """The parsed encoding. Raises UsageError if it is not on this machine."""
        return parse(self.encoding)

    @property
    def schedule(self) -> Schedule:
        config = self.config
        return Schedule.of(config.steps, self.first_steps, config.warmup, config.cooldown)

    @property
    def budget(self) -> dict[str, Any]:
        """What must be equal for two results to be compared."""
        return {
            "steps": self.config.steps,
            "first_steps": self.first_steps,
            "batch_size": self.config.batch_size,
            "config_sha256": self.config.sha256,
            **self._before,
        }

    @property
    def _before(self) -> dict[str, int | float | str]:
        """What was trained before this run began: the same for all seeds."""
        before = self.init_from
        if before is None:
            return {}
        return {"steps_before": before.steps, "config_before": before.config_sha256[:12]}

    @property
    def settings(self) -> dict[str, int | float | str]:
        """The settings that are not the preset's: by --set or --task, a longer budget, a dataset
        of another count; and for how many steps the weights were trained that it began from."""
        before = {} if self.init_from is None else {"steps_before": self.init_from.steps}
        if self.preset not in presets():  # another version's: nothing to tell them from
            return {**before}
        usual = load_preset(self.preset).as_dict()
        changed = {key: x for key, x in self.config.as_dict().items() if x != usual[key]}
        return {**before, **changed}

    @property
    def of_today(self) -> bool:
        """Whether its task and its encoding are what they were then; an encoding that is not on
        this machine counts as unchanged, for its results are read all the same."""
        try:
            sources = source_hashes(self.name.encoding)
        except UsageError:
            sources = self.sources
        version = load_task(self.config.task).version
        return (self.task_version, self.sources) == (version, sources)

    @classmethod
    def of(cls, content: dict[str, Any]) -> "RunRecord":
        """What stands in run.json. Errors: KeyError, ValueError."""
        of = mapping(content.get("sources", {}), "sources")
        sources = {text(part, "sources"): digest(sha, part) for part, sha in of.items()}
        encoding = text(content["encoding"], "encoding")
        before, policy = content.get("init_from"), content.get("on_nonfinite", "stop")
        return cls(
            # What is not ours need not be on this machine for its results to be read.
            encoding=encoding if sources else str(parse(encoding)),
            seed=whole(content["seed"], "seed"),
            preset=text(content["preset"], "preset"),
            config=Config.from_dict(mapping(content["config"], "config")),
            task_version=whole(content.get("task_version", FIRST_TASK_VERSION), "task_version"),
            first_steps=whole(content["first_steps"], "first_steps", 1),
            data=None if content["data"] is None else digest(content["data"], "data"),
            version=text(content["version"], "version"),
            sources=sources,
            init_from=None if before is None else InitFrom.of(mapping(before, "init_from")),
            on_nonfinite=checked_policy(text(policy, "on_nonfinite")),
            skipped_steps=whole(content.get("skipped_steps", 0), "skipped_steps"),
        )

    def content(self) -> dict[str, Any]:
        """What `of` reads."""
        before = None if self.init_from is None else vars(self.init_from)
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**content, "config": self.config.as_dict(), "init_from": before}


def unchanged(path: Path, record: RunRecord) -> None:
    """Errors: UsageError where the run at `path` is of problems that this installation does not
    make, or of an encoding whose file is another now: it could neither go on nor be scored as what
    was trained."""
    task = load_task(record.config.task)
    if record.task_version != task.version:
        raise UsageError(
            f"{path} was trained on version {record.task_version} of {task.name}, and this "
            f"tape-arith makes version {task.version}: go on with tape-arith {record.version}, or "
            "train it anew, with --fresh or into another folder with --out"
        )
    try:
        encoding = record.name.encoding
        now = source_hashes(encoding)
        places = [locate("encoding", part.name) for part in encoding.parts]
    except UsageError as error:
        raise UsageError(f"{path} was trained with {record.encoding}: {error}") from None
    for part in now.keys() - record.sources.keys():
        raise Failure(f"{path}/run.json names {part} without its SHA-256: nothing of it is run")
    for place in places:
        # To read somebody's run must not be to run what came along with it.
        if place.file is not None and place.file.resolve().is_relative_to(path.resolve()):
            raise Failure(f"{path} brings its own code ({place}): nothing of it is run")
    for part, sha256 in record.sources.items():
        if now.get(part) != sha256:
            raise UsageError(
                f"{path} was trained with another {part} (SHA-256 {sha256[:12]}, now "
                f"{now.get(part, 'none')[:12]}): put that one back, or train it anew "
                "with --fresh or another --out"
            )
