"""The checkpoints of a run in training: the last two are kept, and the last good one is resumed."""

from pathlib import Path

from tape_arith.arith.errors import Corrupt, Failure
from tape_arith.arith.files import remove
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.lock import check_lock
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.weights import identity, load_state
from tape_arith.arith.terminal import say
from tape_arith.arith.training import checkpoint
from tape_arith.arith.training.failures import NotFinite, is_out_of_memory
from tape_arith.arith.training.trainer import Trainer


class TrainingCheckpoints:
    """Saves and resumes the checkpoints of a run that is being trained.

    `last_good` is the last checkpoint from which training can go on, with its step.
    """

    def __init__(self, folder: RunFolder, record: RunRecord, trainer: Trainer) -> None:
        self.folder = folder
        self.record = record
        self.trainer = trainer
        self.last_good: tuple[Path, int] | None = None
        self.corrupt: list[Path] = []

    def resume(self) -> None:
        """Put the newest good checkpoint into the trainer, if there is any.

        A corrupt one is named and passed over. It is removed by the next save only: until then it
        is what marks the run as unfinished. Raises Failure if all are corrupt, or one belongs to
        another run or version.
        """
        corrupt: dict[Path, Corrupt] = {}
        for path in self.folder.checkpoints():
            try:
                tensors, facts = load_state(path, self.record, self.trainer.hardware.device)
            except Corrupt as error:
                corrupt[path] = error
                continue
            self.trainer.restore(tensors, facts, path)
            self.last_good = path, self.trainer.step
            break
        else:
            if corrupt:
                first = next(iter(corrupt.values()))
                raise Failure(
                    f"{first}; no older checkpoint is good: start the run over with --fresh"
                ) from first
        if corrupt:
            reasons = "; ".join(map(str, corrupt.values()))
            say(f"note: {reasons}: training goes on from {path.name}, step {self.trainer.step}")
        self.corrupt = list(corrupt)

    def save(self) -> None:
        """Save the checkpoint that training resumes from; the one before is kept beside it."""
        self._save(self.folder.latest, keep=self.folder.previous)

    def keep(self) -> None:
        """Save the checkpoint that a longer budget goes on from."""
        self._save(self.folder.before_cooldown)

    def _save(self, target: Path, keep: Path | None = None) -> None:
        tensors, facts = self.trainer.state()
        check_lock(self.folder.path)
        if target in self.corrupt:  # never kept in place of a good one
            keep = None
            if target.is_dir():
                remove(target)
        checkpoint.save(target, tensors, facts | identity(self.record), keep)
        self.last_good = target, self.trainer.step
        for path in self.corrupt:
            if path != target:
                remove(path)
        self.corrupt = []

    def finish(self) -> None:
        """Save the final weights and remove the checkpoints; with the last of them gone, the run
        counts as finished."""
        decoder = self.trainer.decoder
        weights = {f"model/{name}": value for name, value in decoder.state_dict().items()}
        check_lock(self.folder.path)
        facts = {"step": self.trainer.step, "skipped": self.trainer.skipped}
        checkpoint.save(self.folder.final, weights, facts | identity(self.record))
        remove(self.folder.previous)
        remove(self.folder.latest)

    def explain(self, error: BaseException) -> Failure | None:
        """A Failure with its remedy for the error that ended training; None for an unknown one."""
        if isinstance(error, NotFinite):
            resumable = "there is no checkpoint yet"
            if self.last_good is not None:
                path, step = self.last_good
                resumable = f"the last good checkpoint is {path}, step {step}"
            remedy = "train anew with a lower learning_rate"
            if error.may_skip and self.record.on_nonfinite == "stop":
                command = f"tape-arith train {self.folder.path} --on-nonfinite skip"
                remedy += f", or leave such steps out: {command}"
            return Failure(f"{error}; {resumable}: {remedy}")
        if is_out_of_memory(error):
            reason = " ".join(str(error).split())[:200]
            return Failure(f"out of memory at step {self.trainer.step + 1}: {reason}")
        return None
