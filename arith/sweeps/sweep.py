"""A sweep: a TOML file that says which encodings are trained with which seeds. No torch here.

    # What is compared here: the line that `tape-arith sweep` shows.
    preset = "mini"
    encodings = ["rope", "tape+yarn"]     # or [[groups]], each with its encodings and seeds
    seeds = [0, 1, 2]                     # the outer loop: what is there is a whole comparison
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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tape_arith.arith.data.bucket import EVALUATION, known_split
from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.files import Count, InvalidValue, Part, parse_toml, validated
from tape_arith.arith.runs.folder import ExpectedRun, RunFolder, run_folder, slug
from tape_arith.arith.runs.record import changed_settings, load_preset
from tape_arith.arith.training.config import Config
from tape_arith.models.names.locate import known_names
from tape_arith.models.names.parse import Name, parse

BUNDLED = Path(__file__).parent / "bundled"
MOST_SEEDS = 1000
"""A typing error must not plan more jobs than fit into memory."""


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
    splits: tuple[str, ...] = (EVALUATION,)
    learning_rates: tuple[float, ...] = ()
    """Of the tuned track: one is chosen for each encoding, by the mean in distribution."""
    text: str = ""
    """The file's own."""

    @property
    def names(self) -> list[Name]:
        """All encodings, in the file's order."""
        return list(dict.fromkeys(name for group in self.groups for name in group.names))

    def root(self, out: Path, learning_rate: float | None = None) -> Path:
        """The folder of the runs below `out`; each learning rate of the tuned track has its own."""
        if learning_rate is not None:
            return out / self.name / f"learning_rate={slug(str(learning_rate))}"
        return out if self.config == load_preset(self.preset) else out / self.name

    def runs(self, out: Path) -> list[Run]:
        """The runs, in order."""
        configs: dict[float | None, Config] = {None: self.config}
        if self.learning_rates:
            configs = {r: replace(self.config, learning_rate=r) for r in self.learning_rates}
        return [
            Run(name, seed, self.preset, config, self.root(out, rate))
            for seed in dict.fromkeys(seed for group in self.groups for seed in group.seeds)
            for group in self.groups
            for name in group.names
            for rate, config in configs.items()
            if seed in group.seeds
        ]


def sweep_folder(sweep: Sweep, out: Path) -> Path:
    """The folder of a sweep's logs, states and tables; its runs are among those of `out`."""
    return out / "sweeps" / sweep.name


def sweep_copy(folder: Path) -> Path:
    """The copy of the sweep's file in its folder, of the last call: `status` plans its jobs."""
    return folder / f"{folder.name}.toml"


def sweep_names() -> list[str]:
    """The names of the bundled sweeps."""
    return sorted(path.stem for path in BUNDLED.glob("*.toml"))


def load_sweep(name: str) -> Sweep:
    """Load the bundled sweep of that name, or the file at that path. Raises UsageError."""
    path = Path(name)
    if name in sweep_names():
        path = BUNDLED / f"{name}.toml"
    elif path.suffix != ".toml" or path.stem.startswith("."):
        raise unknown("sweep", name, [*sweep_names(), "a path that ends in .toml"])
    try:
        text, content = parse_toml(path)
    except Failure as error:
        raise UsageError(str(error)) from error
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    try:
        return _checked(path.stem, text, content)
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
    splits: Annotated[list[str], Field(min_length=1)] = Field(default=[EVALUATION])
    settings: dict[str, Any] = Field(default={}, alias="set")
    tune: dict[str, list[float]] = Field(default={})


def _checked(name: str, text: str, content: Mapping[str, Any]) -> Sweep:
    file = validated(content, _SweepFile)
    config = validated({**load_preset(file.preset).as_dict(), **file.settings}, Config)
    for key in file.tune:
        if key != "learning_rate":
            raise UsageError(
                f"tune takes learning_rate alone, not {key}: one table would hold several budgets, "
                f"sizes or evaluation sets; give each value a sweep of its own, {key} under [set]"
            )
    rates = tuple(file.tune.get("learning_rate", ()))
    if file.tune and not len(set(rates)) == len(rates) > 1:
        raise UsageError("tune.learning_rate must be a list of several values")
    for rate in rates:
        config.with_settings({"learning_rate": rate})
    summary = text.split("\n")[0].removeprefix("#").strip() if text.startswith("#") else ""
    splits = tuple(map(known_split, file.splits))
    return Sweep(name, summary, file.preset, config, _groups(file), splits, rates, text)


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
        if _earlier_trainings(name) != _earlier_trainings(first):
            raise UsageError(
                f"{first} and {name} do not begin alike, so they never stand in one table: give "
                "each a sweep of its own (what a run begins from is trained in any case)"
            )
    return tuple(result)


def _earlier_trainings(name: Name) -> int:
    """The number of trainings before the one of `name`."""
    origin = name.encoding.origin
    return 0 if origin is None else 1 + _earlier_trainings(Name(origin.encoding))
