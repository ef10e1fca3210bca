"""Load presets, recipes in TOML files, and compare configs with them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tape_arith.arith.documents import validated
from tape_arith.arith.errors import Failure, UsageError, unknown
from tape_arith.arith.files import parse_toml, read_text
from tape_arith.arith.registry.names import parse_task
from tape_arith.arith.runs.config import Config

PRESETS_FOLDER = Path(__file__).parent / "presets"


def presets() -> list[str]:
    """Return the names of all presets."""
    return sorted(path.stem for path in PRESETS_FOLDER.glob("*.toml"))


def known_preset(name: str | None) -> str | None:
    """Return the name of a preset, or PRESET@TASK with the canonical name of the task; or None.

    A task that this machine lacks keeps its text, so that its results can be read. Raises
    UsageError for an unknown preset.
    """
    if name is None:
        return None
    own, at, task = name.partition("@")
    if own not in presets():
        raise unknown("preset", own, presets())
    with suppress(UsageError):
        task = str(parse_task(task))
    return preset_of(own, task) if at else own


def check_task(preset: str | None) -> None:
    """Raise UsageError if this machine lacks the task of PRESET@TASK."""
    task = (preset or "").partition("@")[2]
    if task:
        parse_task(task)


def is_preset(name: str) -> bool:
    """Tell whether this installation has the preset in PRESET or PRESET@TASK."""
    return name.partition("@")[0] in presets()


def preset_of(preset: str, task: str) -> str:
    """Return PRESET@TASK, or PRESET for its own task, so that no two tasks share a folder."""
    own = preset.partition("@")[0]
    return own if load_preset(own).task == task else f"{own}@{task}"


def with_task(preset: str, task: str) -> str:
    """Return `preset_of`. Raises UsageError if `preset` is PRESET@TASK of another task."""
    if preset.partition("@")[2] not in ("", task):
        raise UsageError(
            f"--preset {preset} and --task {task} name two tasks: leave one of them out"
        )
    return preset_of(preset, task)


def load_preset(name: str) -> Config:
    """Return the config of PRESET or PRESET@TASK. Raises UsageError for an unknown preset.

    A preset may name another as its `base` and give only the differences.
    """
    own, at, task = name.partition("@")
    if at:  # the task's file is not read, because it may be missing
        return replace(load_preset(own), task=task)
    return _read(name)[0]


def asks_to_compile(name: str) -> bool:
    """Tell whether a preset says `compile = true`: trainings on a CPU then compile their blocks.

    That changes rounding alone, so it is no setting of the config. False for an unknown preset.
    """
    return is_preset(name) and _read(name.partition("@")[0])[1]


def _read(name: str, *derived: str) -> tuple[Config, bool]:
    """Read the file of a preset: its config, and whether it asks to compile.

    derived  the presets that are based on it
    """
    known_preset(name)
    path = PRESETS_FOLDER / f"{name}.toml"
    try:
        content = parse_toml(path)[1]
        base = content.pop("base", None)
        if not isinstance(base, str | None):
            raise UsageError(f"base is the name of a preset, not {base}")
        if base in (name, *derived):
            raise Failure(f"{path}: its base leads back to itself: name another preset")
        inherited, compiles = (None, False) if base is None else _read(base, name, *derived)
        compiles = content.pop("compile", compiles)
        if not isinstance(compiles, bool):
            raise UsageError("compile is true or false")
        settings = {} if inherited is None else inherited.as_dict()
        return validated({**settings, **content}, Config), compiles
    except ValueError as error:  # not TOML, or UsageError
        raise Failure(f"{path}: {error}") from error


def parse_settings(settings: Sequence[str] | None) -> dict[str, str]:
    """Parse the values of --set, each `key=value`. Raises UsageError."""
    for setting in settings or ():
        if "=" not in setting:
            raise UsageError(f"--set takes key=value, not '{setting}'")
    return dict(setting.split("=", 1) for setting in settings or ())


def describe_preset(name: str) -> str:
    """Return the first comment in the file of PRESET or PRESET@TASK."""
    first = read_text(PRESETS_FOLDER / f"{name.partition('@')[0]}.toml").split("\n")[0]
    return first.removeprefix("#").strip()


def changed_settings(config: Config, preset: str) -> dict[str, Any]:
    """Return the settings of `config` that differ from those of `preset`."""
    standard = load_preset(preset).as_dict()
    return {key: value for key, value in config.as_dict().items() if value != standard[key]}
