"""Writes the figures of attention."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from arith.figures.attention.distance import by_distance
from arith.figures.attention.maps import maps
from arith.figures.attention.places import places
from arith.figures.attention.study import Study
from arith.figures.figure_file import STYLE, figure_format, save


def draw(study: Study, path: Path, layers: Sequence[int], heads: Sequence[int]) -> list[Path]:
    """Write the figures beside each other, `path` with -distance, -places and, where there is an
    example, -maps (of `layers` and `heads`) before its ending (.png, .svg or .pdf); each whole or
    not at all.

    Errors: UsageError for another ending and for too many maps; Failure where the disk refuses.
    """
    kind = figure_format(path)
    written = []
    with mpl.rc_context(STYLE):
        figures = {"distance": by_distance(study), "places": places(study)}
        if study.example is not None:
            figures["maps"] = maps(study, layers, heads)
        for name, figure in figures.items():
            file = path.with_name(f"{path.stem}-{name}{path.suffix}")
            save(figure, file, kind)
            written.append(file)
    return written
