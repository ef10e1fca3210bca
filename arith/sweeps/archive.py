"""Keep results in an archive while jobs run, so that a machine that goes takes none with it.

Never imports torch.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from tape_arith.arith.errors import Failure, UsageError
from tape_arith.arith.sharing.pack import checked_archive, pack
from tape_arith.arith.sweeps.jobs import Job, ScoreJob
from tape_arith.arith.terminal import say


def archiving(archive: Path | None, jobs: Sequence[Job]) -> Callable[[Job], None]:
    """Return a function that packs the runs of `jobs` with a complete grid, given one just scored.

    Results that were there before are packed too; weights are not. Raises UsageError if `archive`
    has another ending or the runs are in several folders.
    """
    if archive is None:
        return lambda job: None
    out, roots = checked_archive(archive), {job.request.root for job in jobs}
    if len(roots) > 1:
        raise UsageError(
            f"--pack takes the runs of one folder, and this sweep's settings have {len(roots)}: "
            "leave it out, and `tape-arith pack` each"
        )

    def pack_scored(job: Job) -> None:
        if not isinstance(job, ScoreJob):
            return
        scored = [each.request.run for each in jobs if isinstance(each, ScoreJob) and each.done()]
        try:
            pack(list(dict.fromkeys(scored)), out)
        except (Failure, OSError) as error:  # what comes next is worth more than the archive
            say(f"note: {out} is not renewed: {error}")

    return pack_scored
