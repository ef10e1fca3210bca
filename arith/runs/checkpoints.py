"""The states of a run on disk: saved so that two are kept, and taken up where one is good."""

from pathlib import Path

from tape_arith.arith.errors import Corrupt, Failure
from tape_arith.arith.files import remove
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.lock import confirm
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.weights import identity, load_state
from tape_arith.arith.terminal import say
from tape_arith.arith.training import checkpoint
from tape_arith.arith.training.failures import is_out_of_memory
from tape_arith.arith.training.nonfinite import NotFinite
from tape_arith.arith.training.trainer import Trainer


class States:
    """Saves the states of a run that is being trained; `good` is the last one from which it can go
    on, with its step."""

    def __init__(self, folder: RunFolder, record: RunRecord, trainer: Trainer) -> None:
        self.folder = folder
        self.record = record
        self.trainer = trainer
        self.good: tuple[Path, int] | None = None
        self.damaged: list[Path] = []

    def resume(self) -> None:
        """Put the newest good state into the trainer; none where there is none yet. One that is
        damaged is passed over for the one before it, which is told; it goes with the next saving,
        for until there is another state it is what says that the run is not at its end.

        Errors: Failure where all are damaged, or one is of another run or a newer version.
        """
        damaged: dict[Path, Corrupt] = {}
        for path in self.folder.states():
            try:
                tensors, facts = load_state(path, self.record, self.trainer.hardware.device)
            except Corrupt as error:
                damaged[path] = error
                continue
            self.trainer.restore(tensors, facts, path)
            self.good = path, self.trainer.step
            break
        else:
            if damaged:
                first = next(iter(damaged.values()))
                raise Failure(
                    f"{first}; no older state is good: start the run over with --fresh"
                ) from first
        if damaged:
            told = "; ".join(map(str, damaged.values()))
            say(f"note: {told}: training goes on from {path.name}, step {self.trainer.step}")
        self.damaged = list(damaged)

    def save(self) -> None:
        """The state from which training goes on; the one before is kept beside it."""
        self._save(self.folder.latest, keep=self.folder.previous)

    def keep(self) -> None:
        """The state from which a longer budget goes on."""
        self._save(self.folder.before_cooldown)

    def _save(self, to: Path, keep: Path | None = None) -> None:
        tensors, facts = self.trainer.state()
        confirm(self.folder.path)
        if to in self.damaged:  # it is not kept in place of a good one
            keep = None
            if to.is_dir():
                remove(to)
        checkpoint.save(to, tensors, facts | identity(self.record), keep)
        self.good = to, self.trainer.step
        for path in self.damaged:
            if path != to:
                remove(path)
        self.damaged = []

    def finish(self) -> None:
        """The final weights, in place of the states on the way. Until the last of those is gone,
        the run reads as unfinished."""
        decoder = self.trainer.decoder
        weights = {f"model/{name}": value for name, value in decoder.state_dict().items()}
        confirm(self.folder.path)
        facts = {"step": self.trainer.step, "skipped": self.trainer.skipped}
        checkpoint.save(self.folder.final, weights, facts | identity(self.record))
        remove(self.folder.previous)
        remove(self.folder.latest)

    def failure(self, error: BaseException) -> Failure | None:
        """What to say where training ended in `error`; None where that is none of ours."""
        if isinstance(error, NotFinite):
            where = "there is no checkpoint yet"
            if self.good is not None:
                where = f"the last good checkpoint is {self.good[0]}, step {self.good[1]}"
            what = "train anew with a lower learning_rate"
            if error.may_skip and self.record.on_nonfinite == "stop":
                path = self.folder.path
                what += f", or leave such steps out: tape-arith train {path} --on-nonfinite skip"
            return Failure(f"{error}; {where}: {what}")
        if is_out_of_memory(error):
            told = " ".join(str(error).split())[:200]
            return Failure(f"out of memory at step {self.trainer.step + 1}: {told}")
        return None
