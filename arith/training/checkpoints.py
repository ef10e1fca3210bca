"""Save the checkpoints of a training, and resume from them."""

import time
from pathlib import Path

from tape_arith.arith.decoders.weights import identity, load_state, save
from tape_arith.arith.errors import Corrupt, Failure
from tape_arith.arith.files import remove
from tape_arith.arith.lock import check_lock
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.runs.run import Run
from tape_arith.arith.terminal import say
from tape_arith.arith.training.trainer import Trainer

# If one save takes longer than _LONG_SAVE seconds, saves are spaced so that they take at most
# _SAVING_SHARE of the training: at the paper's size a checkpoint has 1.4 GB.
_LONG_SAVE, _SAVING_SHARE = 1.0, 0.05


class Checkpoints:
    """Saves the checkpoints of a run in training and resumes from them; the last two are kept.

    `last_good` describes the last checkpoint from which training can continue.
    """

    save_every = 100  # steps

    def __init__(self, run: Run, record: RunRecord, trainer: Trainer) -> None:
        self.run = run
        self.record = record
        self.trainer = trainer
        self.last_good = "there is no checkpoint yet"
        self._next_save = 0.0

    def resume(self) -> None:
        """Restore the trainer from the newest good checkpoint, if there is any.

        Names corrupt checkpoints on stderr and replaces them with the good one. Raises Failure if
        all are corrupt, or if one belongs to another run or version.
        """
        corrupt: dict[Path, Corrupt] = {}
        for path in self.run.checkpoints():
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
        self._has_good(path)
        if corrupt:
            reasons = "; ".join(map(str, corrupt.values()))
            say(f"note: {reasons}: training continues from {path.name}, step {self.trainer.step}")
            # Saved before others are removed, because a run without checkpoints counts as finished.
            self._save(self.run.latest)
            check_lock(self.run.path)
            for other in corrupt.keys() - {self.run.latest}:
                remove(other)

    def due(self) -> bool:
        """Tell whether to save after this step."""
        trainer = self.trainer
        due = trainer.step % self.save_every == 0 and not trainer.done
        return due and time.perf_counter() >= self._next_save

    def save(self) -> None:
        """Save the checkpoint that training resumes from, and keep the one before it."""
        began = time.perf_counter()
        self.trainer.read_clock()
        self._save(self.run.latest, keep=self.run.previous)
        took = time.perf_counter() - began
        self._next_save = began + took + took / _SAVING_SHARE if took > _LONG_SAVE else 0.0

    def keep(self) -> None:
        """Save the checkpoint from which training continues if the budget is raised."""
        self._save(self.run.before_cooldown)

    def _save(self, target: Path, keep: Path | None = None) -> None:
        tensors, facts = self.trainer.state()
        check_lock(self.run.path)
        save(target, tensors, facts | identity(self.record), keep)
        self._has_good(target)

    def _has_good(self, path: Path) -> None:
        self.last_good = f"the last good checkpoint is {path}, step {self.trainer.step}"

    def finish(self) -> None:
        """Save the final weights and remove the last two checkpoints, which finishes the run."""
        decoder = self.trainer.decoder
        weights = {f"model/{name}": value for name, value in decoder.state_dict().items()}
        check_lock(self.run.path)
        facts = {"step": self.trainer.step, "skipped": self.trainer.skipped}
        save(self.run.final, weights, facts | identity(self.record))
        remove(self.run.previous)
        remove(self.run.latest)
