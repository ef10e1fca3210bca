"""Writes the figures of attention."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from tape_arith.arith.figures.figure_file import STYLE, figure_format, save
from tape_arith.arith.studies.attention_figure.distance import by_distance
from tape_arith.arith.studies.attention_figure.maps import maps
from tape_arith.arith.studies.attention_figure.places import places
from tape_arith.arith.studies.attention_figure.study import Study


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
