"""Load a sweep, a TOML file with encodings to train and their seeds. Never imports torch.

README.md explains the keys of the file. Runs with settings other than the preset's go to a folder
named after the sweep, with a subfolder for each combination, never among the preset's runs.

tape@from=rope starts from the final weights of rope; tape@only-positional-from=rope does so too,
but trains only tape's own parameters. For both, rope is trained first, but not scored.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from tape_arith.arith.data.bucket import EVALUATION, known_split
from tape_arith.arith.documents import Count, Part, validated
from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.files import parse_toml, slug
from tape_arith.arith.registry.locate import known_names
from tape_arith.arith.registry.names import Name, parse, read_contrast
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.preset import known_preset, load_preset, preset_of
from tape_arith.arith.runs.request import Request

BUNDLED = Path(__file__).parent / "bundled"
RUN = "run"
"""The name under which the command `run` has its logs; no sweep may have it."""
_MOST = 1000
"""Limit of seeds and of combinations, so that a typing error cannot fill the memory."""


@dataclass(frozen=True)
class Combination:
    """A preset and a combination of settings.

    It has one config or, if learning rates are tuned, one per rate. Then tables have, for each
    encoding, the config that is best in distribution.
    """

    preset: str
    configs: tuple[Config, ...]


@dataclass(frozen=True)
class Group:
    """Encodings and seeds, in the file's order, and presets: each is trained with each."""

    presets: tuple[str, ...]
    names: tuple[Name, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Sweep:
    """The content of a sweep's file, with known names only."""

    name: str
    summary: str
    presets: tuple[str, ...]
    combinations: tuple[Combination, ...]
    groups: tuple[Group, ...]
    splits: tuple[str, ...] = (EVALUATION,)
    varied: tuple[str, ...] = ()
    """The names of the settings in which configs differ."""
    contrasts: tuple[tuple[str, str], ...] = ()
    """The pairs of encodings whose difference is tested."""
    text: str = ""
    """The text of the file."""

    @property
    def names(self) -> list[Name]:
        """The encodings, in the file's order."""
        return list(dict.fromkeys(name for group in self.groups for name in group.names))

    def settings(self, config: Config) -> dict[str, Any]:
        """Return the values of the varied settings."""
        return {key: getattr(config, key) for key in self.varied}

    def label(self, config: Config) -> str:
        """Format varied settings for a path: "hidden_size=128,learning_rate=0.001"."""
        return ",".join(f"{key}={slug(str(v))}" for key, v in self.settings(config).items())

    def requests(self, out: Path) -> list[Request]:
        """List the requested runs, group by group, and in a group seed by seed."""
        places: list[tuple[str, str, Config, Path]] = []
        for combination in self.combinations:
            for config in combination.configs:
                preset = preset_of(combination.preset, config.task)
                own = self.varied or config != load_preset(preset)
                root = out / self.name / self.label(config) if own else out
                places.append((combination.preset, preset, config, root))
        return [
            Request(name, seed, preset, config, root, self.settings(config))
            for group in self.groups
            for seed in group.seeds
            for name in group.names
            for named, preset, config, root in places
            if named in group.presets
        ]


def sweep_folder(name: str, out: Path) -> Path:
    """Return the folder of a sweep's logs, states and tables; runs are elsewhere in `out`."""
    return out / "sweeps" / name


def sweep_copy(folder: Path) -> Path:
    """Return the path of the sweep file's copy, from which `status` plans the same jobs."""
    return folder / f"{folder.name}.toml"


def sweep_names() -> list[str]:
    """List the names of the bundled sweeps."""
    return sorted(path.stem for path in BUNDLED.glob("*.toml"))


def load_sweep(name: str) -> Sweep:
    """Load a bundled sweep by name, or a file by path. Raises UsageError."""
    path = Path(name)
    if name in sweep_names():
        path = BUNDLED / f"{name}.toml"
    elif path.suffix != ".toml" or path.stem.startswith("."):
        raise unknown("sweep", name, [*sweep_names(), "a path that ends in .toml"])
    if path.stem == RUN:
        raise UsageError(f"{path}: the command `run` has its logs under this name: rename the file")
    try:
        text = _with_paths(parse_toml(path)[0], path.parent)
        content = tomllib.loads(text)
    except Failure as error:
        raise UsageError(str(error)) from error
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    try:
        return _checked(path.stem, text, content)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _with_paths(text: str, folder: Path) -> str:
    """Return the text of a sweep's file with its paths relative to the working folder."""

    def path(match: re.Match[str]) -> str:
        there = folder / match[0]
        return there.as_posix() if there.is_file() else match[0]

    return re.sub(r"(?<=[\"'+])[\w./-]+\.py(?=:)", path, text)


_Presets = Annotated[list[str], Field(min_length=1)]


class _GroupTable(Part):
    encodings: Annotated[list[str], Field(min_length=1)]
    seeds: Annotated[list[Count], Field(min_length=1, max_length=_MOST)]
    presets: _Presets | None = None


class _Tune(Part):
    learning_rate: Annotated[list[float], Field(min_length=2)]


_Values = Annotated[list[Any], Field(min_length=1)]
_Grid = Annotated[dict[str, _Values], Field(min_length=1)]


class SweepFile(Part):
    """The keys of a sweep's file."""

    preset: str | None = None
    presets: _Presets | None = None
    encodings: list[str] | None = None
    seeds: list[Count] | None = None
    groups: Annotated[list[dict[str, Any]], Field(min_length=1)] | None = None
    splits: Annotated[list[str], Field(min_length=1)] = Field(default=[EVALUATION])
    contrasts: list[str] = Field(default=[])
    settings: dict[str, Any] = Field(default={}, alias="set")
    grid: Annotated[
        list[_Grid],
        BeforeValidator(lambda grid: [grid] if isinstance(grid, dict) else grid),
    ] = Field(default=[])
    tune: dict[str, Any] | None = None


_Model = TypeVar("_Model")


def _table(name: str, content: Mapping[str, Any], model: type[_Model]) -> _Model:
    """Convert a table of the file to a `model`. Raises UsageError, naming the table."""
    try:
        return validated(content, model)
    except UsageError as error:
        raise UsageError(f"[{name}]: {error}") from None


def _checked(name: str, text: str, content: Mapping[str, Any]) -> Sweep:
    """Build a sweep from the content of its file. Raises UsageError if a value is wrong."""
    file = validated(content, SweepFile)
    if (file.preset is None) == (file.presets is None):
        if file.preset is None:
            raise UsageError("'preset' is missing: give one, or several as presets")
        raise UsageError("give preset or presets, not both")
    presets = tuple(_known_presets(file.presets or [file.preset or ""]))

    def config(preset: str, changed: dict[str, Any]) -> Config:
        base, settings = load_preset(preset), {**file.settings, **changed}
        validated({**base.as_dict(), **settings}, Config)  # refuses a number in quotes
        return base.with_settings(settings)

    for preset in presets:
        config(preset, {})
    grids, rates = file.grid or [{}], list[dict[str, Any]]([{}])
    if file.tune is not None:
        rates = [{"learning_rate": rate} for rate in _table("tune", file.tune, _Tune).learning_rate]
        if any("learning_rate" in grid for grid in grids):
            raise UsageError("learning_rate is in [grid] and in [tune]: leave it out of one")
    if sum(prod(map(len, grid.values())) for grid in grids) > _MOST:
        raise UsageError(f"[grid] has more than {_MOST} combinations")

    combinations = tuple(
        Combination(
            preset,
            tuple(config(preset, dict(zip(grid, values, strict=True)) | rate) for rate in rates),
        )
        for preset in presets
        for grid in grids
        for values in product(*grid.values())
    )
    varied = tuple(dict.fromkeys(key for table in (*grids, *rates) for key in table))
    summary = text.split("\n")[0].removeprefix("#").strip() if text.startswith("#") else ""
    splits = tuple(map(known_split, file.splits))
    groups = _groups(file, presets)
    pairs = tuple(map(read_contrast, file.contrasts))
    sweep = Sweep(name, summary, presets, combinations, groups, splits, varied, pairs, text)
    if pairs and (varied or len(presets) > 1):
        raise UsageError("contrasts need one preset without [grid] or [tune]: others are no table")
    for planned in chain(*pairs):
        if planned not in map(str, sweep.names):
            raise unknown("encoding of this sweep", planned, map(str, sweep.names))
    configs = chain(*(combination.configs for combination in combinations))
    for repeated, count in Counter(configs).items():
        if count > 1:
            raise UsageError(f"{sweep.label(repeated) or 'a preset'} is named twice")
    return sweep


def _known_presets(names: Iterable[str]) -> list[str]:
    """Return the canonical names of presets. Raises UsageError if one is unknown."""
    return list(filter(None, map(known_preset, names)))


def _groups(file: SweepFile, presets: tuple[str, ...]) -> tuple[Group, ...]:
    """Return the groups; "*" means the encodings that the file does not name."""
    if (file.groups is None) == (file.encodings is None and file.seeds is None):
        raise UsageError("give encodings and seeds, or [[groups]] that have them")
    if file.groups is None:
        tables = [validated({"encodings": file.encodings, "seeds": file.seeds}, _GroupTable)]
    else:
        tables = [_table("groups", group, _GroupTable) for group in file.groups]
    named = {str(parse(text)) for table in tables for text in table.encodings if text != "*"}
    rest = [name for name in known_names("encoding") if name not in named]
    groups, named_with = [], set[tuple[str, Name]]()
    for table in tables:
        own = tuple(_known_presets(table.presets or presets))
        if unlisted := [preset for preset in own if preset not in presets]:
            raise unknown("preset of this sweep", unlisted[0], presets)
        names: list[Name] = []
        for text in table.encodings:
            for name in map(parse, rest if text == "*" else [text]):
                pairs = {(preset, name) for preset in own}
                if pairs & named_with:
                    raise UsageError(f"{name} is named twice")
                named_with |= pairs
                names.append(name)
        groups.append(Group(own, tuple(names), tuple(dict.fromkeys(table.seeds))))
    first, *more = (name for group in groups for name in group.names)
    for name in more:  # each "from=" is a training before it
        if str(name).count("from=") != str(first).count("from="):
            raise UsageError(
                f"{first} and {name} do not start alike, so they are never in one table: give each "
                "a sweep of its own (a sweep also trains the runs that others start from)"
            )
    return tuple(groups)
