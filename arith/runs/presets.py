"""Presets: one TOML file each in the folder `presets`. Never imports torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.files import parse_toml, read_text
from tape_arith.arith.training.config import Config

FOLDER = Path(__file__).parent / "presets"


def presets() -> list[str]:
    """Return the names of all presets."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def known(name: str | None) -> str | None:
    """Return `name`. Raises UsageError unless it is None or a preset."""
    if name is not None and name not in presets():
        raise unknown("preset", name, presets())
    return name


def load_preset(name: str) -> Config:
    """Return the config of a preset. Raises UsageError for an unknown name."""
    known(name)
    path = FOLDER / f"{name}.toml"
    try:
        return Config.from_dict(parse_toml(path)[1])
    except ValueError as error:  # not TOML, or UsageError
        raise Failure(f"{path}: {error}") from error


def pairs(settings: Sequence[str]) -> dict[str, str]:
    """Parse `key=value` settings of the command line. Raises UsageError."""
    split = [setting.partition("=") for setting in settings]
    for (_, equals, _), setting in zip(split, settings, strict=True):
        if not equals:
            raise UsageError(f"--set takes key=value, not '{setting}'")
    return {key: value for key, _, value in split}


def describe(name: str) -> str:
    """Return the first comment of a preset's file."""
    first = read_text(FOLDER / f"{name}.toml").split("\n")[0]
    return first.removeprefix("#").strip()


def changed_settings(config: Config, preset: str) -> dict[str, Any]:
    """Settings of `config` that differ from those of `preset`."""
    standard = load_preset(preset).as_dict()
    return {key: value for key, value in config.as_dict().items() if value != standard[key]}
