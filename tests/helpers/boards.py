"""What leaderboards and tables in Markdown show, to compare as values."""

from typing import Any

import tape_arith


def seeds_shown(pe: str = "all", **options: Any) -> dict[str, int]:
    """Count the seeds of each encoding on the leaderboard."""
    frame = tape_arith.leaderboard(pe=pe, **options)
    return {str(name): len(seeds) for name, seeds in zip(frame.encoding, frame.seeds, strict=True)}


def cells(text: str) -> list[list[str]]:
    """Return the cells of each row of the tables in Markdown text."""
    lines = (line.strip("| ").split(" | ") for line in text.splitlines() if line[:1] == "|")
    return [[cell.strip() for cell in line] for line in lines]
