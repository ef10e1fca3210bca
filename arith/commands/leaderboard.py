"""`tape-arith leaderboard`: the scored encodings of a preset, ranked."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.errors import UsageError

EXAMPLE = "tape-arith leaderboard --preset mini --out leaderboard.tex --figure leaderboard.pdf"
_ENDINGS = {".md": "markdown", ".txt": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}


def command(
    pe: option.Encodings = "all",
    preset: option.Preset = None,
    split: option.Split = "evaluation",
    max_digits: option.MaxDigits = None,
    runs: option.Runs = Path("runs"),
    format: Annotated[
        str | None,
        typer.Option(help="markdown, csv, latex or json (default: by --out, or markdown)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A file for the table, not stdout.")] = None,
    figure: option.Figure = None,
    costs: option.Costs = False,
) -> None:
    """Rank all scored encodings of a preset by their mean out of distribution.

    --pe chooses rows; ranks and tests stay those of all.
    Runs of another budget or evaluation set are left out and named. The table goes to stdout; with
    --out or --figure, what is printed is the files written.
    """
    from tape_arith.arith.compare.leaderboard import build_board
    from tape_arith.arith.figures.tables import FORMATS
    from tape_arith.arith.files import write_text
    from tape_arith.arith.scoring.grid import EvaluationSet

    kind = format or (_ENDINGS.get(out.suffix.lower()) if out else "markdown")
    if kind is None:
        endings = ", ".join(_ENDINGS)
        raise UsageError(f"{out} has none of the endings {endings}: give it one, or say --format")
    if kind not in FORMATS:
        raise UsageError(f"unknown format '{kind}'. Known: {', '.join(FORMATS)}")
    if figure:
        from tape_arith.arith.figures.leaderboard import compose
        from tape_arith.arith.figures.style import figure_format, save

        figure_format(figure)  # before anything is written
    evaluation_set = EvaluationSet(split, max_digits)
    content, *_ = build_board(runs, pe, preset, evaluation_set, costs=costs)
    if out:
        write_text(out, FORMATS[kind](content))
        print(out)
    if figure:
        save(compose(content), figure)
        print(figure)
    if not out and not figure:
        print(FORMATS[kind](content), end="")
