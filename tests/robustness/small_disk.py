"""Commands on a small disk that is filled up to so many pages, and then made read-only.

    python -m tests.robustness.small_disk DISK SCORED NAME...

DISK is a tmpfs of this process's own (unshare), SCORED a folder with a scored run, each NAME one
of `writers.WRITERS`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from arith.suite import runs
from tests.robustness.readers import leftovers, read_all
from tests.robustness.writers import WRITERS, assert_told, both, prepared

PAGE = 4096
TRIALS, SPARE = 5, 4
"""How often it is filled; pages that a command needs for a moment beside those that it keeps."""
NAMES = ["cannot write", "runs/", "d", "f.png"]


def free(disk: Path) -> int:
    """Pages that are left."""
    return os.statvfs(disk).f_bavail


def fill(disk: Path, pages: int) -> Path:
    """A file that leaves so many."""
    balloon = disk / "balloon.txt"
    with open(balloon, "wb") as file:
        file.truncate(0)
        while (left := free(disk)) > pages:
            file.write(bytes(PAGE * (left - pages)))
            file.flush()
    return balloon


def tried(name: str, disk: Path, scored: Path) -> None:
    """Errors: AssertionError where a promise is not kept."""
    writer, place = WRITERS[name], disk / "place"
    prepared(place, writer, scored)
    os.chdir(place)
    before = free(disk)
    assert both(writer).code == 0
    right, needed = writer.result(place), before - free(disk) + SPARE
    told = []
    for trial in range(TRIALS):
        pages = trial * needed // TRIALS
        prepared(place, writer, scored)
        balloon = fill(disk, pages)
        result = both(writer)
        if result.code != 0:
            assert_told(result, NAMES, at=f"{pages} pages")
            told.append(pages)
        assert leftovers(place) == [], f"{pages} pages: {result.err}"
        read_all(place)
        balloon.unlink()
        again = both(writer)
        assert again.code == 0, f"after {pages} pages: {again.err}"
        assert writer.result(place) == right and leftovers(place) == [], f"after {pages} pages"
    assert told, f"{needed} pages were never too few"
    prepared(place, writer, scored)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert_told(both(writer), NAMES, at="read-only")
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert both(writer).code == 0 and writer.result(place) == right
    print(f"{name}: {needed} pages; too few: {told}")


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "SAVE_EVERY", 2)
        patch.setattr(runs, "LOG_EVERY", 1)
        for name in sys.argv[3:]:
            tried(name, Path(sys.argv[1]), Path(sys.argv[2]))
