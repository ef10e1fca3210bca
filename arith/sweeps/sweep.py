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

"*" among encodings stands for all that the file does not name alone. tape@from=rope begins from
the final weights of rope, tape@only-positional-from=rope trains its own parameters alone; rope is
trained before them, and scored if it is named. Runs with settings of their own go to a folder named
after the sweep, so that they never lie among the preset's. Nothing but the learning rate is tuned.
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
from tape_arith.arith.runs.folder import RunFolder, run_folder, slug
from tape_arith.arith.runs.presets import changed_settings, load_preset
from tape_arith.arith.training.config import Config
from tape_arith.models.names.locate import known_names
from tape_arith.models.names.parse import Name, parse

FOLDER = Path(__file__).parent / "bundled"
MOST_SEEDS = 1000
"""A slip of the hand must not plan more jobs than fit into the memory."""
TUNABLE = "learning_rate"
"""What the tuned track of the protocol chooses for each encoding: all else in one ranked table is
equal, or it would hold several budgets, sizes or evaluation sets."""


@dataclass(frozen=True)
class Run:
    """What is to be trained and scored: one encoding, one seed, one way of scoring."""

    name: Name
    seed: int
    preset: str
    config: Config
    root: Path

    @property
    def folder(self) -> RunFolder:
        return run_folder(self.root, self.preset, self.name.encoding, self.seed)

    @property
    def source(self) -> "Run | None":
        """The run whose final weights it begins from, of the same seed and settings."""
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
    """What a sweep's file says, checked: every name is known."""

    name: str
    summary: str
    preset: str
    config: Config
    groups: tuple[Group, ...]
    order: str = "seeds"
    splits: tuple[str, ...] = (EVALUATION,)
    tuned: str | None = None
    """The setting of which each encoding takes the value that is best in distribution."""
    values: tuple[Any, ...] = ()

    @property
    def names(self) -> list[Name]:
        """Every encoding, in the file's order."""
        return list(dict.fromkeys(name for group in self.groups for name in group.names))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of all its runs that are not the preset's."""
        return changed_settings(self.config, self.preset)

    def root(self, out: Path, value: Any = None) -> Path:
        """The folder of its runs below `out`; of a tuned setting each value has its own."""
        if self.tuned is not None and value is not None:
            return out / self.name / f"{self.tuned}={slug(str(value))}"
        return out if self.config == load_preset(self.preset) else out / self.name

    def runs(self, out: Path) -> list[Run]:
        """What is to be done, in order."""
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


def folder_of(sweep: Sweep, out: Path) -> Path:
    """Where a sweep's jobs, logs and tables are; its runs are among those of `out`."""
    return out / "sweeps" / sweep.name


def sweeps() -> list[str]:
    """Names of the sweeps that come along: the files of the folder."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_sweep(text: str) -> Sweep:
    """The sweep of that name, or in the file at that path. Errors: UsageError."""
    path = Path(text)
    if text in sweeps():
        path = FOLDER / f"{text}.toml"
    elif path.suffix != ".toml" or path.stem.startswith("."):
        raise unknown("sweep", text, [*sweeps(), "a path that ends in .toml"])
    try:
        lines, content = parse_toml(path)
    except Failure as error:  # what is asked for is wrong, not what we keep
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
        if _beginnings(name) != _beginnings(first):
            raise UsageError(
                f"{first} and {name} do not begin alike, so they never stand in one table: give "
                "each a sweep of its own (what a run begins from is trained in any case)"
            )
    return tuple(result)


def _beginnings(name: Name) -> int:
    """How many trainings lie before the one of `name`."""
    origin = name.encoding.origin
    return 0 if origin is None else 1 + _beginnings(Name(origin.encoding))


def _set(config: Config, settings: Mapping[str, Any]) -> Config:
    """`config` with settings of a file, each of its own type. Errors: UsageError."""
    return Config.from_dict({**config.as_dict(), **settings})
