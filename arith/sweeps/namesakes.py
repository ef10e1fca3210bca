"""Two sweep files of one name share a folder: what one takes from the other. No torch here."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tape_arith.arith.compare.words import MOST_NAMED
from tape_arith.arith.errors import Failure
from tape_arith.arith.sweeps.jobs import Job, read_jobs
from tape_arith.arith.terminal import say


def tell_what_is_replaced(jobs: Sequence[Job], folder: Path, file: str) -> None:
    """Say so on stderr where `folder` lists runs that `jobs`, those of the sweep `file`, do not
    have, or have with other settings: its list and its tables are replaced."""
    try:
        before = _trainings(read_jobs(folder)) if (folder / "jobs.jsonl").exists() else {}
    except Failure:  # it is written anew
        return
    after = _trainings(job.line() for job in jobs)
    gone = [line for key, line in before.items() if key not in after]
    if gone:
        old, new = _settings(gone), _settings(after.values())
        say(
            f"note: {folder} was that of {_words(gone, old - new)}; its list of jobs and its "
            f"tables are now those of {file}: {_words(after.values(), new - old)}. Runs stay; if "
            "these are two sweeps, give their files names of their own"
        )


def _trainings(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int, str], Mapping[str, Any]]:
    return {
        (line["id"], line["steps"], line["config_sha256"]): line
        for line in lines
        if line["kind"] == "train" and len(Path(line["folder"]).parts) >= 3
    }


def _settings(lines: Iterable[Mapping[str, Any]]) -> set[str]:
    """What the runs set in place of the preset's, as "steps=4"."""
    given = (line.get("argv") for line in lines)
    words = (str(word) for argv in given if isinstance(argv, list) for word in argv)
    return {word.removeprefix("--set=") for word in words if word.startswith("--set=")}


def _words(lines: Iterable[Mapping[str, Any]], settings: Iterable[str]) -> str:
    """ "mini (steps=4): rope, fire" """
    folders = [Path(line["folder"]) for line in lines]
    presets = dict.fromkeys(folder.parts[-3] for folder in folders)
    names = list(dict.fromkeys(folder.parts[-2] for folder in folders))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    own = f" ({', '.join(sorted(settings))})" if settings else ""
    return f"{', '.join(presets)}{own}: {', '.join(names[:MOST_NAMED])}{more}"
