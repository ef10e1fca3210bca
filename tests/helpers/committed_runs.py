"""The folders of committed runs, which hold them as folders or in archives."""

from pathlib import Path

RESULTS = Path(__file__).parents[2] / "results"
ROOTS = [RESULTS, *sorted({archive.parent for archive in RESULTS.rglob("runs.tgz")})]
