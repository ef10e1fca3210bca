"""`tape-arith leaderboard`: every scored encoding of a preset, ranked, with what is known of it."""

from pathlib import Path
from typing import Annotated

import typer

from tape_arith.arith.commands.options import MaxDigits, Preset, Runs, Split
from tape_arith.arith.errors import UsageError

EXAMPLE = "tape-arith leaderboard --preset mini --out leaderboard.tex --figure leaderboard.pdf"
ENDINGS = {".md": "markdown", ".txt": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}


def command(
    preset: Preset = None,
    split: Split = "evaluation",
    max_digits: MaxDigits = None,
    runs: Runs = Path("runs"),
    format: Annotated[
        str | None,
        typer.Option(help="markdown, csv, latex or json (default: by --out, or markdown)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A file for the table, not stdout.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw it too: a .png, .svg or .pdf file.")
    ] = None,
    costs: Annotated[
        bool, typer.Option("--costs", help="With parameters and FLOPs at the preset's size.")
    ] = False,
) -> None:
    """Rank all scored encodings of a preset by their mean out of distribution.

    Runs of another budget or evaluation set are left out and named. The table goes to stdout; with
    --out or --figure, what is printed is the files written.
    """
    from tape_arith.arith.compare.leaderboard import board
    from tape_arith.arith.compare.select import tell
    from tape_arith.arith.data.bucket import known_split
    from tape_arith.arith.figures.leaderboard_table import FORMATS
    from tape_arith.arith.files import write_text
    from tape_arith.arith.runs.record import known_preset
    from tape_arith.arith.scoring.evaluation_set import EvaluationSet

    if format is None and out and out.suffix.lower() not in ENDINGS:
        known_endings = ", ".join(ENDINGS)
        raise UsageError(
            f"{out} has none of the endings {known_endings}: give it one, or say --format"
        )
    kind = format or (ENDINGS[out.suffix.lower()] if out else "markdown")
    if kind not in FORMATS:
        raise UsageError(f"unknown format '{format}'. Known: {', '.join(FORMATS)}")
    if figure:
        from tape_arith.arith.figures.style import figure_format

        figure_format(figure)  # before anything is written
    evaluation_set = EvaluationSet(known_split(split), max_digits)
    found = board(runs, known_preset(preset), evaluation_set=evaluation_set, costs=costs)
    tell(found.left_out)
    if out:
        write_text(out, FORMATS[kind](found))
        print(out)
    if figure:
        from tape_arith.arith.figures.leaderboard import draw

        draw(found, figure)
        print(figure)
    if not out and not figure:
        print(FORMATS[kind](found), end="")
