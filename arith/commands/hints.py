"""Suggest the right option or command for that of another tool or version (hints.toml)."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from typing import Any

from tape_arith.arith.runs.config import Config, settings_called


def hint(error: Exception) -> str | None:
    """Return what to write instead of the unknown option or command of `error`; None if unknown."""
    text = files("tape_arith.arith.commands").joinpath("hints.toml").read_text("utf-8")
    tables: dict[str, dict[str, str]] = tomllib.loads(text)
    missing = re.match(r"No such command '([\w-]+)'", str(getattr(error, "message", "")))
    if missing:
        wrong = missing[1].replace("_", "-").lower()
        right = next(iter(_meant(tables["commands"], wrong)), None)
        return right and f"there is no command {missing[1]}: write tape-arith {right}"
    name, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if name is None or context is None or not hasattr(error, "possibilities"):
        return None
    spellings = {
        spelling: param.opts[0]
        for param in context.command.params
        for spelling in (*param.opts, *param.secondary_opts)
    }
    command = context.info_name
    notes = {
        note: words
        for note, words in tables["notes"].items()
        if command in words.split() or words.startswith("-")
    }
    wrong = name.replace("_", "-").lower()
    advice = _advice(wrong, spellings, {**tables, "notes": notes})
    return None if advice is None else f"{command} has no {name}: {advice}"


def _advice(
    wrong: str, options: Mapping[str, Any], tables: Mapping[str, Mapping[str, str]]
) -> str | None:
    """Return what to write in place of `wrong`; `options` maps spellings to options."""
    if wrong in options:
        return f"write {wrong}"
    for right in _meant(tables["options"], wrong):
        if right in options:
            return f"write {options[right]}"
    settings = settings_called(wrong)
    settings += [f.name for f in fields(Config) if wrong == f"--{f.name.replace('_', '-')}"]
    if settings and "--set" in options:
        return f"write --set {settings[0]}=VALUE"
    if notes := _meant(tables["notes"], wrong):
        return notes[0]
    if not settings:
        return None
    setting = f"--set {settings[0]}=VALUE"
    return f"a run is trained with this setting: `train {setting}`, or [set] in a sweep file"


def _meant(table: Mapping[str, str], wrong: str) -> list[str]:
    return [right for right, words in table.items() if wrong in words.split()]
