"""Print a table in a format, write it to a file or draw it, for `leaderboard` and `tasks`."""

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tape_arith.arith.commands import option
from tape_arith.arith.errors import UsageError, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENDINGS = {".md": "markdown", ".txt": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}

Format = Annotated[
    str | None,
    typer.Option(
        help="markdown, csv, latex or json (default: by --out's ending; else a table for the "
        "terminal, markdown elsewhere)."
    ),
]
Show = Annotated[
    str,
    typer.Option(
        metavar="NAMES", help="Columns of the table, such as encoding,seeds,out_of_distribution."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Write the table to this file; rope.tex has the label tab:rope.",
        callback=option.written_file,
    ),
]


class TableOutput:
    """The options of a table: its format (None: for a terminal), columns and files."""

    def __init__(
        self,
        format: str | None,
        as_csv: bool,
        as_json: bool,
        show: str,
        out: Path | None,
        figure: Path | None,
        label: list[str] | None,
        looks: tuple[float | None, bool],
        wide: bool = False,
    ) -> None:
        """`looks` are the width of the figure and whether captions are left out.

        Raises UsageError for contradictions.
        """
        from tape_arith.arith.compare.labels import read_labels
        from tape_arith.arith.compare.tables import CAPTIONED, FOR_PEOPLE, FORMATS
        from tape_arith.arith.figures.style import figure_format

        kind = chosen_format(format, FORMATS, as_csv=as_csv, as_json=as_json)
        if wide and (kind or out):
            raise UsageError(
                "--wide is for the terminal: leave out --wide, or --out and the format"
            )
        if out and not kind:
            kind = _ENDINGS.get(out.suffix.lower())
            if kind is None:
                known = ", ".join(_ENDINGS)
                raise UsageError(
                    f"{out} has none of the endings {known}: give it one, or add --format"
                )
        width, no_caption = looks
        if width and not figure:
            raise UsageError("--width changes a figure: add --figure")
        if no_caption and not (figure or kind in CAPTIONED):
            raise UsageError(
                "--no-caption changes a figure or a table for a paper: add --figure or --out "
                "table.tex"
            )
        if not (kind or figure or wide or sys.stdout.isatty()):
            kind = "markdown"
        if label and not (figure or kind in FOR_PEOPLE):
            raise UsageError(
                "--label changes a figure or a table for a paper: add --figure or --out table.tex"
            )
        if figure:
            figure_format(figure)  # before anything is written
        self.kind, self.out, self.figure = kind, out, figure
        self.width, self.captioned = width, not no_caption
        self.options: dict[str, Any] = {}
        """The options of the table's format."""
        if kind in CAPTIONED:
            self.options = {"captioned": self.captioned, "label": out.stem if out else ""}
        self.columns = [name.strip() for name in show.split(",") if name.strip()]
        self.labels = read_labels(label)

    def show(
        self,
        text: str,
        draw: "Callable[..., Figure]",
        show_in_terminal: Callable[[], None],
    ) -> None:
        """Write the table and the figure and print their paths; without both, print the table."""
        from tape_arith.arith.figures.style import save
        from tape_arith.arith.origin import write_table

        if self.out:
            write_table(self.out, text)
            print(self.out)
        if self.figure:
            save(draw(width=self.width, caption=self.captioned), self.figure)
            print(self.figure)
        if self.kind and not self.out:
            print(text, end="")
        elif not (self.out or self.figure):
            show_in_terminal()


def chosen_format(
    format: str | None, known: Collection[str], *, as_csv: bool, as_json: bool
) -> str | None:
    """Return the requested format, or None. Raises UsageError for two or an unknown format."""
    requested = {format, *["csv"] * as_csv, *["json"] * as_json} - {None}
    if len(requested) > 1:
        raise UsageError("choose one of --format, --csv and --json")
    chosen = next(iter(requested), None)
    if chosen is not None and chosen not in known:
        raise unknown("format", chosen, known)
    return chosen
