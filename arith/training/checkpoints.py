"""Save the checkpoints of a training, and resume from them."""

from pathlib import Path

from tape_arith.arith.decoders.weights import identity, load_state, save
from tape_arith.arith.errors import Corrupt, Failure
from tape_arith.arith.files import remove
from tape_arith.arith.lock import check_lock
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.terminal import say
from tape_arith.arith.training.trainer import Trainer


class TrainingCheckpoints:
    """Saves the checkpoints of a run in training and resumes from them; the last two are kept.

    `last_good` is the last checkpoint from which training can continue, with its step.
    """

    def __init__(self, folder: RunFolder, record: RunRecord, trainer: Trainer) -> None:
        self.folder = folder
        self.record = record
        self.trainer = trainer
        self.last_good: tuple[Path, int] | None = None

    def resume(self) -> None:
        """Restore the trainer from the newest good checkpoint, if there is any.

        Names corrupt checkpoints and replaces them by the good one. Raises Failure if all are
        corrupt, or if one belongs to another run or version.
        """
        corrupt: dict[Path, Corrupt] = {}
        for path in self.folder.checkpoints():
            try:
                tensors, facts = load_state(path, self.record, self.trainer.hardware.device)
                break
            except Corrupt as error:
                corrupt[path] = error
        else:
            if corrupt:
                first = next(iter(corrupt.values()))
                raise Failure(
                    f"{first}; no older checkpoint is good: start the run over with --fresh"
                ) from first
            return
        self.trainer.restore(tensors, facts, path)
        self.last_good = path, self.trainer.step
        if corrupt:
            reasons = "; ".join(map(str, corrupt.values()))
            say(f"note: {reasons}: training goes on from {path.name}, step {self.trainer.step}")
            # Saved before others are removed: without checkpoints the run would count as finished.
            self._save(self.folder.latest)
            for other in corrupt.keys() - {self.folder.latest}:
                remove(other)

    def save(self) -> None:
        """Save the checkpoint that training resumes from, and keep the previous one beside it."""
        self._save(self.folder.latest, keep=self.folder.previous)

    def keep(self) -> None:
        """Save the checkpoint from which training continues if the budget is raised."""
        self._save(self.folder.before_cooldown)

    def _save(self, target: Path, keep: Path | None = None) -> None:
        tensors, facts = self.trainer.state()
        check_lock(self.folder.path)
        save(target, tensors, facts | identity(self.record), keep)
        self.last_good = target, self.trainer.step

    def finish(self) -> None:
        """Save the final weights, then remove the latest two checkpoints; once both are gone, the
        run counts as finished."""
        decoder = self.trainer.decoder
        weights = {f"model/{name}": value for name, value in decoder.state_dict().items()}
        check_lock(self.folder.path)
        facts = {"step": self.trainer.step, "skipped": self.trainer.skipped}
        save(self.folder.final, weights, facts | identity(self.record))
        remove(self.folder.previous)
        remove(self.folder.latest)
