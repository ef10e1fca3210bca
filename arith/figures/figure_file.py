"""How figures become files: their formats, their letters, the same bytes for the same figure."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from tape_arith.arith.errors import UsageError
from tape_arith.arith.files import atomic

FORMATS = ("png", "svg", "pdf")
DPI = 300
# Text as text in PDF (type 42, as journals ask), and the same bytes for the same figure.
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "pdf.fonttype": 42,
    "svg.hashsalt": "tape-arith",
    "hatch.linewidth": 0.5,
    "axes.linewidth": 0.6,
}
UNDATED: dict[str, dict[str, Any]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def figure_format(path: Path) -> str:
    """What a figure's ending asks for. Errors: UsageError for what cannot be drawn."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(f"cannot draw {path}: a figure's name ends in .png, .svg or .pdf")
    return kind


def save(figure: Figure, path: Path, kind: str) -> None:
    """Write `figure` to `path`, whole or not at all. Errors: Failure where the disk refuses."""
    with mpl.rc_context(STYLE), atomic(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=DPI, metadata=UNDATED[kind])
