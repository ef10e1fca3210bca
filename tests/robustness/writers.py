"""The commands that write, at sizes that take a moment in this process: a line each."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.robustness import victims
from tests.suite.tiny import SETTINGS, Result, call, contents, settings

RUN = "runs/mini/rope/seed-0"
SWEEP = f"""# Refused.
preset = "mini"
encodings = ["rope+yarn"]
seeds = [0]
[set]
{chr(10).join(f"{key} = {value}" for key, value in SETTINGS.items())}
"""


@dataclass(frozen=True)
class Writer:
    """A command; whether it needs runs that are trained and scored; what it leaves."""

    argv: tuple[object, ...]
    runs: bool = True
    result: Callable[[Path], Any] = lambda folder: None
    then: tuple[object, ...] | None = None
    """Another command after it, which goes on from there."""
    moves: frozenset[str] = frozenset()
    """What it puts elsewhere before it writes it anew."""
    stride: int = 1
    """Every so many of its writes is refused: those of a slow command are much alike."""


def weights(folder: Path) -> dict[str, Any]:
    """All grids' counts and the weights of every run."""
    return victims.sweep(folder)


def written(folder: Path) -> dict[str, bytes]:
    """Every byte outside of the runs."""
    return {name: data for name, data in contents(folder).items() if not name.startswith("runs/")}


WRITERS = {
    "generate": Writer(("generate", *settings(), "--workers", 1, "--out", "d"), False, written),
    "text": Writer(("generate", *settings(), "--format", "text", "--out", "d.txt"), False, written),
    "parquet": Writer(
        ("generate", *settings(), "--format", "parquet", "--out", "d.parquet"), False, written
    ),
    "train": Writer(("train", "--pe", "rope", *settings()), False, weights, stride=2),
    "extend": Writer(
        ("train", RUN, "--steps", 8), True, weights, moves=frozenset({f"{RUN}/grid.json"}), stride=3
    ),
    "score": Writer(("score", RUN, "--with", "yarn"), True, weights),
    "parts": Writer(
        ("score", RUN, "--split", "carry", "--shard", "1/1"),
        True,
        weights,
        ("score", RUN, "--split", "carry", "--merge", 1),
    ),
    "sweep": Writer(("sweep", "refused.toml"), False, weights, stride=6),
    "ablate": Writer(("ablate", "refused.toml"), False, weights, stride=11),
    "transformers": Writer(("export", RUN, "--fresh"), True, written, stride=4),
    "lm-eval": Writer(
        ("export", RUN, "--fresh", "--format", "lm-eval", "--per-cell", 1), True, written, stride=4
    ),
    "bench": Writer(("bench", "startup", "--quick", "--json", "bench.json"), False, stride=2),
    "heatmap": Writer(("heatmap", "--compare", "rope", "--out", "f.png"), True, written, stride=2),
    "leaderboard": Writer(
        ("leaderboard", "--out", "b.md", "--figure", "b.png"), True, written, stride=2
    ),
    "report": Writer(("report", "--out", "r.html"), True),
    "curves": Writer(("curves", "--compare", "rope", "--out", "c.png"), True, written, stride=2),
    "errors": Writer(("errors", RUN, "--out", "e.svg"), True, written, stride=2),
    "attention": Writer(("attention", RUN, "--plot", "a.png"), True, written, stride=4),
    "stability": Writer(
        ("stability", RUN, "--problems", 9, "--out", "s.csv", "--plot", "s.png"),
        result=written,
        stride=3,
    ),
}


def prepared(folder: Path, writer: Writer, scored: Path) -> Path:
    """An empty working folder for `writer`, with the runs of `scored` where it needs some."""
    folder.mkdir(exist_ok=True)
    for there in folder.iterdir():
        shutil.rmtree(there) if there.is_dir() else there.unlink()
    if writer.runs:
        shutil.copytree(scored, folder, dirs_exist_ok=True)
    (folder / "refused.toml").write_text(SWEEP)
    return folder


def both(writer: Writer) -> Result:
    """The command and what comes after it, as far as they go."""
    result = call(*writer.argv)
    return call(*writer.then) if writer.then and result.code == 0 else result


def assert_told(result: Result, names: Sequence[str], at: str) -> None:
    """Exit code 1 and one line, which names the file or its folder."""
    assert result.code == 1, f"{at}: {result.err}"
    lines = [line for line in result.err.splitlines() if line.startswith("tape-arith: ")]
    assert len(lines) == 1 and result.err.endswith(f"{lines[0]}\n"), f"{at}: {result.err}"
    assert any(name in lines[0] for name in names), f"{at}: {result.err}"
