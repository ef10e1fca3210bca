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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tape_arith.arith.data.bucket import EVALUATION, known_split
from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.files import Count, InvalidValue, Part, parse_toml, validated
from tape_arith.arith.runs.folder import ExpectedRun, Progress, RunFolder, run_folder, slug
from tape_arith.arith.runs.record import load_preset
from tape_arith.arith.scoring.grid import DEFAULT_SET, EvaluationSet, Grid
from tape_arith.arith.training.config import Config
from tape_arith.models.locate import known_names
from tape_arith.models.names import Name, parse

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
        """The facts that the record of the run must hold."""
        return ExpectedRun(str(self.name.encoding), self.seed, self.config)

    @property
    def source(self) -> "Run | None":
        """The run whose final weights this one begins from, of the same seed and settings."""
        origin = self.name.encoding.origin
        return None if origin is None else replace(self, name=Name(origin.encoding))

    def score_progress(self, evaluation_set: EvaluationSet) -> Progress:
        """Read how far its scoring on `evaluation_set` is."""
        way = self.name.extrapolation
        extrapolation = None if way is None else str(way)
        return self.folder.score_progress(self.expected, extrapolation, evaluation_set)

    def complete_grid(self, evaluation_set: EvaluationSet) -> Grid | None:
        """Return its grid if that need not be scored again."""
        if not self.score_progress(evaluation_set).done:
            return None
        grid = Grid.load(self.folder.grid_file(self.name.extrapolation, evaluation_set))
        if evaluation_set != DEFAULT_SET:
            grid.usual = self.complete_grid(DEFAULT_SET)
        return grid


@dataclass(frozen=True)
class Sweep:
    """The content of a sweep's file, checked: every name is known."""

    name: str
    summary: str
    preset: str
    config: Config
    seeds: dict[Name, tuple[int, ...]]
    """Of each encoding, in the file's order."""
    splits: tuple[str, ...] = (EVALUATION,)
    learning_rates: tuple[float, ...] = ()
    """Of the tuned track: one is chosen for each encoding, by the mean in distribution."""
    text: str = ""
    """The file's own."""

    def root(self, out: Path, learning_rate: float | None = None) -> Path:
        """Return the folder of the runs below `out`; a tuned learning rate has its own."""
        if learning_rate is not None:
            return out / self.name / f"learning_rate={slug(str(learning_rate))}"
        return out if self.config == load_preset(self.preset) else out / self.name

    def runs(self, out: Path) -> list[Run]:
        """List the runs, in order."""
        configs: dict[float | None, Config] = {None: self.config}
        if self.learning_rates:
            configs = {r: replace(self.config, learning_rate=r) for r in self.learning_rates}
        return [
            Run(name, seed, self.preset, config, self.root(out, rate))
            for seed in dict.fromkeys(seed for own in self.seeds.values() for seed in own)
            for name, own in self.seeds.items()
            for rate, config in configs.items()
            if seed in own
        ]


def sweep_folder(sweep: Sweep, out: Path) -> Path:
    """Return the folder of a sweep's logs, states and tables; its runs are among those of `out`."""
    return out / "sweeps" / sweep.name


def sweep_copy(folder: Path) -> Path:
    """Return the copy of a sweep's file in its folder: `status` plans the jobs of the last call."""
    return folder / f"{folder.name}.toml"


def sweep_names() -> list[str]:
    """List the names of the bundled sweeps."""
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


class _Tune(Part):
    learning_rate: Annotated[list[float], Field(min_length=2)]


class _SweepFile(Part):
    """The keys of a sweep's file."""

    preset: str
    encodings: list[str] | None = None
    seeds: list[Count] | None = None
    groups: Annotated[list[_GroupTable], Field(min_length=1)] | None = None
    splits: Annotated[list[str], Field(min_length=1)] = Field(default=[EVALUATION])
    settings: dict[str, Any] = Field(default={}, alias="set")
    tune: _Tune | None = None


def _checked(name: str, text: str, content: Mapping[str, Any]) -> Sweep:
    file = validated(content, _SweepFile)
    config = validated({**load_preset(file.preset).as_dict(), **file.settings}, Config)
    rates = tuple(file.tune.learning_rate) if file.tune else ()
    if len(set(rates)) != len(rates):
        raise UsageError("tune.learning_rate names a value twice")
    for rate in rates:
        config.with_settings({"learning_rate": rate})
    summary = text.split("\n")[0].removeprefix("#").strip() if text.startswith("#") else ""
    splits = tuple(map(known_split, file.splits))
    return Sweep(name, summary, file.preset, config, _seeds(file), splits, rates, text)


def _seeds(file: _SweepFile) -> dict[Name, tuple[int, ...]]:
    """Return the seeds of each encoding; "*" stands for those that the file does not name."""
    if (file.groups is None) == (file.encodings is None and file.seeds is None):
        raise UsageError("give encodings and seeds, or [[groups]] that have them")
    tables = file.groups or [
        validated({"encodings": file.encodings, "seeds": file.seeds}, _GroupTable)
    ]
    named = {str(parse(text)) for table in tables for text in table.encodings if text != "*"}
    rest = [name for name in known_names("encoding") if name not in named]
    seeds: dict[Name, tuple[int, ...]] = {}
    for table in tables:
        for text in table.encodings:
            for name in map(parse, rest if text == "*" else [text]):
                if name in seeds:
                    raise UsageError(f"{name} is named twice")
                seeds[name] = tuple(dict.fromkeys(table.seeds))
    first, *more = seeds
    for name in more:  # a training before each "from="
        if str(name).count("from=") != str(first).count("from="):
            raise UsageError(
                f"{first} and {name} do not begin alike, so they never stand in one table: give "
                "each a sweep of its own (what a run begins from is trained in any case)"
            )
    return seeds
