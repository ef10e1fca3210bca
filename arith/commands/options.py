"""Options that several commands take, and how they are completed."""

from pathlib import Path
from typing import Annotated

import typer

from models import catalog


def complete_encoding(incomplete: str) -> list[str]:
    """After a comma another encoding, after a plus what can be joined to one."""
    cut = max(map(incomplete.rfind, ",+")) + 1
    head, last = incomplete[:cut], incomplete[cut:]
    known = catalog.names("encoding")
    if head.endswith("+"):
        known += catalog.names("extrapolation")
    return [head + name for name in known if name.startswith(last)]


def _complete_preset(incomplete: str) -> list[str]:
    from arith.suite.presets import presets

    return [name for name in presets() if name.startswith(incomplete)]


def _complete_attention(incomplete: str) -> list[str]:
    return [n for n in ("auto", *catalog.backends()) if n.startswith(incomplete)]


Preset = Annotated[
    str | None,
    typer.Option(help="A preset of `tape-arith list`.", autocompletion=_complete_preset),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the preset."),
]
TaskName = Annotated[str | None, typer.Option("--task", help="A task of `tape-arith list`.")]
Runs = Annotated[Path, typer.Option(help="The folder of runs.")]
Seed = Annotated[int, typer.Option(min=0, help="Initialization, training problems, positions.")]
TimeLimit = Annotated[
    str | None, typer.Option(help="Stop in good order after 90s, 25m or 3h (exit code 3).")
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads (default: all cores, or OMP_NUM_THREADS).")
]
Attention = Annotated[
    str,
    typer.Option(
        help="What computes attention: auto, flash-attn, sdpa, flex, eager or fused. One that "
        "cannot do what the encoding needs here is refused, never replaced.",
        autocompletion=_complete_attention,
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over what is there already.")]
Compared = Annotated[
    str,
    typer.Option(
        "--compare",
        metavar="NAMES",
        help="Encodings, as in fire,tape+yarn.",
        autocompletion=complete_encoding,
    ),
]
