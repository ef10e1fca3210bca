"""A sweep: a TOML file that says which encodings are trained with which seeds. No torch here.

    # What is compared here: the line that `tape-arith sweep` shows.
    preset = "mini"
    encodings = ["rope", "tape+yarn"]     # or [[groups]], each with its encodings and seeds
    seeds = [0, 1, 2]
    order = "seeds"                       # outermost, so that what is there is a whole comparison
    splits = ["evaluation", "carry"]      # what is scored (default: evaluation)

    [set]                                 # in place of the preset's settings
    steps = 2000

    [tune]                                # each value is trained; the table takes the one that is
    learning_rate = [3e-4, 1e-3]          # best in distribution, for each encoding

"*" stands for all encodings that the file does not name. tape@from=rope begins from the final
weights of rope, tape@only-positional-from=rope trains its own parameters alone; rope is trained
first, and scored if it is named. Runs with settings of their own go to a folder named after the
sweep, never among the preset's. Nothing but the learning rate is tuned.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tape_arith.arith.data.bucket import EVALUATION, known_split
from tape_arith.arith.documents import Count, InvalidValue, Part, validated
from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.files import parse_toml
from tape_arith.arith.runs.folder import ExpectedRun, RunFolder, run_folder, slug
from tape_arith.arith.runs.record import changed_settings, load_preset
from tape_arith.arith.training.config import Config
from tape_arith.models.names.locate import known_names
from tape_arith.models.names.parse import Name, parse

BUNDLED = Path(__file__).parent / "bundled"
MOST_SEEDS = 1000
"""A typing error must not plan more jobs than fit into memory."""
TUNABLE = "learning_rate"
"""The setting that the tuned track of the protocol chooses for each encoding. All else is equal in
one ranked table, or it would hold several budgets, sizes or evaluation sets."""


@dataclass(frozen=True)
class Run:
    """One encoding, with or without an extrapolation, and one seed: trained, then scored."""

    name: Name
    seed: int
    preset: str
    config: Config
    root: Path

    @property
    def folder(self) -> RunFolder:
        return run_folder(self.root, self.preset, self.name.encoding, self.seed)

    @property
    def expected(self) -> ExpectedRun:
        """What the record of the run must say."""
        config = self.config
        return ExpectedRun(str(self.name.encoding), self.seed, config.steps, config.sha256)

    @property
    def source(self) -> "Run | None":
        """The run whose final weights this one begins from, of the same seed and settings."""
        origin = self.name.encoding.origin
        return None if origin is None else replace(self, name=Name(origin.encoding))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are not the preset's."""
        return changed_settings(self.config, self.preset)


@dataclass(frozen=True)
class Group:
    """Encodings that have the same seeds."""

    names: tuple[Name, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Sweep:
    """The content of a sweep's file, checked: every name is known."""

    name: str
    summary: str
    preset: str
    config: Config
    groups: tuple[Group, ...]
    order: str = "seeds"
    splits: tuple[str, ...] = (EVALUATION,)
    tuned: str | None = None
    """The setting whose value is chosen for each encoding, by the mean in distribution."""
    values: tuple[Any, ...] = ()

    @property
    def names(self) -> list[Name]:
        """All encodings, in the file's order."""
        return list(dict.fromkeys(name for group in self.groups for name in group.names))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of all runs that are not the preset's."""
        return changed_settings(self.config, self.preset)

    def root(self, out: Path, value: Any = None) -> Path:
        """The folder of the runs below `out`; each `value` of a tuned setting has its own."""
        if self.tuned is not None and value is not None:
            return out / self.name / f"{self.tuned}={slug(str(value))}"
        return out if self.config == load_preset(self.preset) else out / self.name

    def runs(self, out: Path) -> list[Run]:
        """The runs, in order."""
        return [
            Run(
                name,
                seed,
                self.preset,
                self.config if value is None else _set(self.config, {str(self.tuned): value}),
                self.root(out, value),
            )
            for name, seed in self._pairs()
            for value in self.values or (None,)
        ]

    def _pairs(self) -> Iterator[tuple[Name, int]]:
        if self.order == "encodings":
            yield from ((n, seed) for g in self.groups for n in g.names for seed in g.seeds)
            return
        for seed in dict.fromkeys(seed for group in self.groups for seed in group.seeds):
            yield from ((n, seed) for g in self.groups if seed in g.seeds for n in g.names)


def sweep_folder(sweep: Sweep, out: Path) -> Path:
    """The folder of a sweep's jobs, logs and tables; its runs are among those of `out`."""
    return out / "sweeps" / sweep.name


def sweep_names() -> list[str]:
    """The names of the bundled sweeps."""
    return sorted(path.stem for path in BUNDLED.glob("*.toml"))


def load_sweep(text: str) -> Sweep:
    """Load the bundled sweep of that name, or the file at that path. Raises UsageError."""
    path = Path(text)
    if text in sweep_names():
        path = BUNDLED / f"{text}.toml"
    elif path.suffix != ".toml" or path.stem.startswith("."):
        raise unknown("sweep", text, [*sweep_names(), "a path that ends in .toml"])
    try:
        lines, content = parse_toml(path)
    except Failure as error:
        raise UsageError(str(error)) from error
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    summary = lines.split("\n")[0].removeprefix("#").strip() if lines.startswith("#") else ""
    try:
        return _checked(path.stem, summary, content)
    except (InvalidValue, UsageError) as error:
        raise UsageError(f"{path}: {error}") from error


class _GroupTable(Part):
    encodings: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[Count], Field(min_length=1, max_length=MOST_SEEDS)]


class _SweepFile(Part):
    """The keys of a sweep's file."""

    preset: str
    encodings: list[str] | None = None
    seeds: list[Count] | None = None
    groups: Annotated[list[_GroupTable], Field(min_length=1)] | None = None
    order: Literal["seeds", "encodings"] = "seeds"
    splits: Annotated[list[str], Field(min_length=1)] = Field(default=[EVALUATION])
    settings: dict[str, Any] = Field(default={}, alias="set")
    tune: dict[str, list[Any]] = Field(default={}, max_length=1)


def _checked(name: str, summary: str, content: Mapping[str, Any]) -> Sweep:
    file = validated(content, _SweepFile)
    config = _set(load_preset(file.preset), file.settings)
    tuned, values = next(iter(file.tune.items()), (None, []))
    if tuned is not None and not len(set(map(repr, values))) == len(values) > 1:
        raise UsageError(f"tune.{tuned} must be a list of several values")
    for value in values:
        _set(config, {str(tuned): value})
    if tuned not in (None, TUNABLE):
        raise UsageError(
            f"tune takes {TUNABLE} alone, not {tuned}: all else is equal in one ranked table, or "
            "it would hold several budgets, sizes or evaluation sets; give each value a sweep of "
            f"its own, with {tuned} under [set]"
        )
    return Sweep(
        name,
        summary,
        file.preset,
        config,
        _groups(file),
        file.order,
        tuple(known_split(split) for split in file.splits),
        tuned,
        tuple(values),
    )


def _groups(file: _SweepFile) -> tuple[Group, ...]:
    if (file.groups is None) == (file.encodings is None and file.seeds is None):
        raise UsageError("give encodings and seeds, or [[groups]] that have them")
    tables = file.groups or [
        validated({"encodings": file.encodings, "seeds": file.seeds}, _GroupTable)
    ]
    texts = [text for table in tables for text in table.encodings]
    if texts.count("*") > 1:
        raise UsageError("* is named twice")
    named = [parse(text) for text in texts if text != "*"]
    for name, times in Counter(named).items():
        if times > 1:
            raise UsageError(f"{name} is named twice")
    written = {str(name) for name in named}
    rest = [parse(n) for n in known_names("encoding") if n not in written]
    result = []
    for table in tables:
        names = [
            name for text in table.encodings for name in (rest if text == "*" else [parse(text)])
        ]
        result.append(Group(tuple(names), tuple(dict.fromkeys(table.seeds))))
    first, *more = [name for group in result for name in group.names]
    for name in more:
        if _origins(name) != _origins(first):
            raise UsageError(
                f"{first} and {name} do not begin alike, so they never stand in one table: give "
                "each a sweep of its own (what a run begins from is trained in any case)"
            )
    return tuple(result)


def _origins(name: Name) -> int:
    """The number of trainings before the one of `name`."""
    origin = name.encoding.origin
    return 0 if origin is None else 1 + _origins(Name(origin.encoding))


def _set(config: Config, settings: Mapping[str, Any]) -> Config:
    """Return `config` with other settings. Raises UsageError."""
    return Config.from_dict({**config.as_dict(), **settings})
