"""A sweep: a TOML file that says which encodings are trained with which seeds. No torch here.

    # What is compared here: the line that `tape-arith sweep` shows.
    preset = "mini"
    encodings = ["rope", "tape+yarn"]     # or [[groups]], each with its encodings and seeds
    seeds = [0, 1, 2]
    order = "seeds"                       # outermost, so that what is there is a whole comparison
    splits = ["evaluation", "carry"]      # what is scored (default: evaluation)
    shards = 4                            # parts a grid is scored in (default: by its size)

    [set]                                 # in place of the preset's settings
    steps = 2000

    [tune]                                # each value is trained; the table takes the one that is
    learning_rate = [3e-4, 1e-3]          # best in distribution, for each encoding

"*" among encodings stands for all that the file does not name alone. Runs with settings of their
own go to a folder named after the sweep, so that they never lie among the preset's.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arith.data.bucket import EVALUATION, known_split
from arith.errors import UsageError, unknown
from arith.suite.folders import RunFolder, run_folder, slug
from arith.suite.presets import load_preset
from arith.training.config import Config
from models import catalog
from models.catalog import Name

FOLDER = Path(__file__).parent / "sweeps"
ORDERS = ("seeds", "encodings")
_GROUP = ("encodings", "seeds")
_KEYS = ("preset", *_GROUP, "groups", "order", "splits", "shards", "set", "tune")


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
    def grid_file(self) -> Path:
        return self.folder.grid_file(self.name.extrapolation)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are not the preset's."""
        usual = load_preset(self.preset).as_dict()
        return {k: v for k, v in self.config.as_dict().items() if v != usual[k]}


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
    shards: int | None = None
    tuned: str | None = None
    """The setting of which each encoding takes the value that is best in distribution."""
    values: tuple[Any, ...] = ()

    @property
    def names(self) -> list[Name]:
        """Every encoding, in the file's order."""
        return list(dict.fromkeys(name for group in self.groups for name in group.names))

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
    elif path.suffix != ".toml":
        raise unknown("sweep", text, [*sweeps(), "a path that ends in .toml"])
    try:
        lines = path.read_text(encoding="utf-8")
        content = tomllib.loads(lines)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    summary = lines.split("\n")[0].removeprefix("#").strip() if lines.startswith("#") else ""
    try:
        return _checked(path.stem, summary, content)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _checked(name: str, summary: str, content: Mapping[str, Any]) -> Sweep:
    _only(content, _KEYS)
    preset = content.get("preset")
    if not isinstance(preset, str):
        raise UsageError('say which preset: preset = "mini"')
    usual = load_preset(preset)
    config = _set(usual, _table(content, "set"))
    order = content.get("order", "seeds")
    if order not in ORDERS:
        raise unknown("order", str(order), ORDERS)
    splits = _list(content, "splits", str) if "splits" in content else [EVALUATION]
    shards = content.get("shards")
    if shards is not None and (type(shards) is not int or shards < 1):
        raise UsageError(f"shards must be a whole number from 1, not {shards!r}")
    tune = _table(content, "tune")
    if len(tune) > 1:
        raise UsageError(f"tune takes one setting, not {', '.join(tune)}")
    tuned, values = next(iter(tune.items()), (None, ()))
    if tuned is not None and not (isinstance(values, list) and len(values) == len(set(values)) > 1):
        raise UsageError(f"tune.{tuned} must be a list of several values")
    for value in values:
        _set(config, {str(tuned): value})
    return Sweep(
        name,
        summary,
        preset,
        config,
        _groups(content),
        order,
        tuple(known_split(split) for split in splits),
        shards,
        tuned,
        tuple(values),
    )


def _groups(content: Mapping[str, Any]) -> tuple[Group, ...]:
    tables = content.get("groups")
    if (tables is None) != any(key in content for key in _GROUP):
        raise UsageError("give encodings and seeds, or [[groups]] that have them")
    if tables is None:
        tables = [{key: content[key] for key in _GROUP if key in content}]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError("groups are tables: [[groups]]")
    for table in tables:
        _only(table, _GROUP)
        _list(table, "encodings", str)
        if any(seed < 0 for seed in _list(table, "seeds", int)):
            raise UsageError("seeds must be 0 or more")
    named = [catalog.parse(n) for table in tables for n in table["encodings"] if n != "*"]
    for name in named:
        if named.count(name) > 1:
            raise UsageError(f"{name} is named twice")
    alone = {str(name) for name in named}
    others = [catalog.parse(n) for n in catalog.names("encoding") if n not in alone]
    result = []
    for table in tables:
        names = [
            found
            for text in table["encodings"]
            for found in (others if text == "*" else [catalog.parse(text)])
        ]
        result.append(Group(tuple(names), tuple(dict.fromkeys(table["seeds"]))))
    return tuple(result)


def _only(content: Mapping[str, Any], keys: Sequence[str]) -> None:
    for key in content:
        if key not in keys:
            raise unknown("key", key, keys)


def _table(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = content.get(key, {})
    if not isinstance(table, dict):
        raise UsageError(f"{key} must be a table: [{key}]")
    return table


def _list(table: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    values = table.get(key)
    if not isinstance(values, list) or not values or any(type(v) is not kind for v in values):
        kinds = "names" if kind is str else "whole numbers"
        raise UsageError(f"{key} must be a list of {kinds}, with one at least")
    return values


def _set(config: Config, settings: Mapping[str, Any]) -> Config:
    """`config` with settings of a file, each of its own type. Errors: UsageError."""
    return Config.from_dict({**config.as_dict(), **settings})
