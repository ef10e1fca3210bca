"""Runs on disk: where each thing of a run is. No torch here.

    RUNS/PRESET/PE/seed-S/
        run.json          what was asked for: encoding, seed, config, data
        environment.json  what it ran on
        metrics.jsonl     a line every few steps
        timings.json      seconds of each stage
        grid.json         exact match by operand lengths (grid+yarn.json: scored with YaRN;
                          grid@carry.json: of the split carry)
        weights/          safetensors; everything but this is small enough to carry away

Facts are read from the files, never from their names.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tape_arith.arith.documents import read_document, write_document
from tape_arith.arith.errors import Corrupt
from tape_arith.arith.files import append_line, write_text
from tape_arith.arith.runs.metrics import CUT_SHORT, line_of, read_lines
from tape_arith.arith.runs.record import Environment, RunRecord, Timings
from tape_arith.arith.scoring.evaluation_set import DEFAULT_SET, EvaluationSet
from tape_arith.arith.terminal import say
from tape_arith.models.names.parse import Encoding, NamePart


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def record_file(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tracking(self) -> Path:
        """What trackers write of it."""
        return self.path / "tracking"

    @property
    def environment_file(self) -> Path:
        return self.path / "environment.json"

    @property
    def timings_file(self) -> Path:
        return self.path / "timings.json"

    @property
    def final(self) -> Path:
        """Weights after the last step."""
        return self.path / "weights" / "final.safetensors"

    @property
    def latest(self) -> Path:
        """Where an unfinished training goes on."""
        return self.path / "weights" / "latest.safetensors"

    @property
    def previous(self) -> Path:
        """The state that was saved before the latest, for when that one is damaged."""
        return self.path / "weights" / "previous.safetensors"

    @property
    def before_cooldown(self) -> Path:
        """From where `train RUN --steps N` goes on."""
        return self.path / "weights" / "before-cooldown.safetensors"

    def grid_file(
        self, extrapolation: NamePart | None = None, evaluation_set: EvaluationSet = DEFAULT_SET
    ) -> Path:
        """Path of the grid of one extrapolation on a normalized evaluation set."""
        split, reach = evaluation_set.filename_parts
        way = f"+{slug(str(extrapolation))}" if extrapolation else ""
        return self.path / f"grid{split}{way}{reach}.json"

    def has_grid(self, evaluation_set: EvaluationSet) -> bool:
        """Whether a grid on these problems exists, with any extrapolation or none."""
        split, reach = evaluation_set.filename_parts
        ways = (file.stem for file in self.path.glob(f"grid{split}+*{reach}.json"))
        return self.grid_file(None, evaluation_set).exists() or any(
            reach or not re.search(r"-to-\d+$", way) for way in ways
        )

    def exists(self) -> bool:
        return self.record_file.exists()

    def unfinished(self) -> bool:
        """A training has stopped, or been stopped, on its way. A kill between the two moves of a
        saving leaves only the previous state."""
        return self.latest.exists() or self.previous.exists()

    def checkpoints(self) -> list[Path]:
        """From where training can go on, in the order in which they are tried. The steps before
        the cool-down are the same whatever the budget, so the state there is always one of them."""
        files = (self.latest, self.previous, self.before_cooldown)
        return [file for file in files if file.exists()]

    def finished(self) -> bool:
        """Trained to the end of its budget."""
        return self.final.exists() and not self.unfinished()

    def has_results_without_weights(self) -> bool:
        """Scored, if only in part, and here without weights, as a run is that was carried away or
        committed."""
        return not (self.final.exists() or self.checkpoints()) and self.has_results()

    def has_results(self) -> bool:
        """Whether there is any grid."""
        return any(self.path.glob("grid*.json"))

    def record(self) -> RunRecord:
        """Read run.json. Raises Failure if there is none or it is corrupt."""
        return read_document(self.record_file, RunRecord)

    def write_record(self, record: RunRecord) -> None:
        write_document(self.record_file, record.to_dict(), RunRecord.kind)

    def environment(self) -> Environment:
        """Read environment.json. Raises Failure if there is none or it is corrupt."""
        return read_document(self.environment_file, Environment)

    def metrics(self) -> list[dict[str, Any]]:
        """Read metrics.jsonl; [] if there is no file.

        Leaves out a last line that was cut short, and says so. Raises Corrupt if another line is
        not what training writes.
        """
        lines, faults = self._metrics_and_faults()
        if faults == [CUT_SHORT]:
            say(f"note: left out of {self.metrics_file}: {CUT_SHORT}")
        elif faults:
            remedy = "put back a whole copy, or remove that line: it only logs"
            raise Corrupt(f"{self.metrics_file} is corrupt: {faults[0]}; {remedy}")
        return lines

    def _metrics_and_faults(self) -> tuple[list[dict[str, Any]], list[str]]:
        return read_lines(self.metrics_file) if self.metrics_file.exists() else ([], [])

    def add_metrics(self, content: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl. Errors: Failure where the disk refuses."""
        append_line(self.metrics_file, line_of(content))

    def truncate_metrics(self, step: int) -> None:
        """Drop the lines of steps that will be taken again, and corrupt ones, naming those."""
        lines, faults = self._metrics_and_faults()
        for fault in faults:
            say(f"note: left out of {self.metrics_file}: {fault}")
        kept = (line_of(line) + "\n" for line in lines if line["step"] <= step)
        write_text(self.metrics_file, "".join(kept))

    def remove_partial(self) -> None:
        """Drop what a kill in the middle of writing left; it is never read."""
        for path in self.path.rglob(".*.partial"):
            if not path.is_dir():  # an export, which its own writers see to
                path.unlink()

    def timings(self) -> dict[str, float]:
        """Return the seconds of each stage, {} if there is no file. Raises Failure."""
        if not self.timings_file.exists():
            return {}
        return read_document(self.timings_file, Timings).seconds

    def write_timing(self, stage: str, seconds: float) -> None:
        stages = self.timings() | {stage: round(seconds, 3)}
        write_document(self.timings_file, {"seconds": stages}, Timings.kind)


def run_folder(root: Path, preset: str, encoding: Encoding, seed: int) -> RunFolder:
    """Where a run lives. Its parts are names, so nothing in them can lead elsewhere."""
    return RunFolder(root / preset / slug(str(encoding)) / f"seed-{seed}")


def slug(name: str) -> str:
    """A name as part of a path that every file system takes."""
    return re.sub(r"[^A-Za-z0-9.+=_-]", "@", name)
