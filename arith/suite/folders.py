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
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arith.checking import mapping, number, text
from arith.errors import Failure
from arith.files import append_line, read_json, write_json, write_text
from arith.reading import read_bytes
from arith.scoring.shards import Shard
from arith.suite.asked import USUAL, Asked
from arith.suite.metrics_line import line_of, read_line, read_lines
from arith.suite.progress import say
from arith.suite.record import RunRecord
from models.names.parse import Encoding, NamePart


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

    def grid_file(self, extrapolation: NamePart | None = None, asked: Asked = USUAL) -> Path:
        """Each way of scoring has a file of its own, `asked` being said as `Asked.of` says it."""
        split, reach = asked.file_ends
        way = f"+{slug(str(extrapolation))}" if extrapolation else ""
        return self.path / f"grid{split}{way}{reach}.json"

    def has_grid(self, asked: Asked) -> bool:
        """Whether there is a grid on these problems, whatever the way it was scored."""
        split, reach = asked.file_ends
        ways = (file.stem for file in self.path.glob(f"grid{split}+*{reach}.json"))
        return self.grid_file(None, asked).exists() or any(
            reach or not re.search(r"-to-\d+$", way) for way in ways
        )

    def shard(self, grid: Path, shard: Shard) -> "RunFolder":
        """Where a part of the file `grid` is scored: a folder of its own, so that no two jobs share
        one."""
        return RunFolder(self.path / "shards" / grid.stem / shard.slug)

    def remove_shards(self, grid: str = "*") -> None:
        """Drop the parts of grids: they are in the grids now, or of no use any more."""
        for folder in self.path.glob(f"shards/{grid}"):
            shutil.rmtree(folder)
        with suppress(OSError):  # none, or those of another grid
            (self.path / "shards").rmdir()

    def exists(self) -> bool:
        return self.record_file.exists()

    def unfinished(self) -> bool:
        """A training has stopped, or been stopped, on its way. A kill between the two moves of a
        saving leaves only the previous state."""
        return self.latest.exists() or self.previous.exists()

    def states(self) -> list[Path]:
        """From where training can go on, in the order in which they are tried. The steps before
        the cool-down are the same whatever the budget, so the state there is always one of them."""
        files = (self.latest, self.previous, self.before_cooldown)
        return [file for file in files if file.exists()]

    def finished(self) -> bool:
        """Trained to the end of its budget."""
        return self.final.exists() and not self.unfinished()

    def carried(self) -> bool:
        """Scored, if only in part, and here without weights, as a run is that was carried away or
        committed."""
        return not (self.final.exists() or self.states()) and self.has_results()

    def has_results(self) -> bool:
        """Whether there is any grid, or part of one."""
        found = ("grid*.json", "shards/*/*/grid*.json")
        return any(any(self.path.glob(pattern)) for pattern in found)

    def record(self) -> RunRecord:
        """Errors: Failure where there is none or it is corrupt."""
        content = read_json(self.record_file, "run")
        try:
            return RunRecord.of(content)
        except KeyError as error:
            raise Failure(f"{self.record_file} is corrupt: {error} is missing") from error
        except ValueError as error:
            raise Failure(f"{self.record_file} is corrupt: {error}") from error

    def write_record(self, record: RunRecord) -> None:
        write_json(self.record_file, {"kind": "run", **record.content()})

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; none where there is no such file."""
        return read_lines(self.metrics_file) if self.metrics_file.exists() else []

    def add_metrics(self, content: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl. Errors: Failure where the disk refuses."""
        append_line(self.metrics_file, line_of(content))

    def keep_metrics_to(self, step: int) -> None:
        """Drop the lines of steps that will be taken again, and a line that a kill cut short. One
        that is damaged goes too, which is told."""
        kept = []
        if self.metrics_file.exists():
            text = read_bytes(self.metrics_file).decode(errors="replace")
            *lines, _ = text.split("\n")  # after the last end of a line: nothing, or half of one
            for number, line in enumerate(lines, 1):
                try:
                    content = read_line(line)
                except ValueError as error:
                    say(f"note: {self.metrics_file}, line {number}, is left out: {error}")
                    continue
                if content["step"] <= step:
                    kept.append(line + "\n")
        write_text(self.metrics_file, "".join(kept))

    def remove_partial(self) -> None:
        """Drop what a kill in the middle of writing left; it is never read."""
        for path in self.path.rglob(".*.partial"):
            if not path.is_dir():  # an export, which its own writers see to
                path.unlink()

    def timings(self) -> dict[str, float]:
        """Seconds of each stage; none where there is no such file. Errors: Failure."""
        if not self.timings_file.exists():
            return {}
        content = read_json(self.timings_file, "timings")
        try:
            stages = mapping(content.get("seconds"), "seconds")
            return {text(stage, "stage"): number(s, stage, 0) for stage, s in stages.items()}
        except ValueError as error:
            why = f"{error}; remove it, it only times"
            raise Failure(f"{self.timings_file} is corrupt: {why}") from error

    def write_timing(self, stage: str, seconds: float) -> None:
        stages = self.timings() | {stage: round(seconds, 3)}
        write_json(self.timings_file, {"kind": "timings", "seconds": stages})


def run_folder(root: Path, preset: str, encoding: Encoding, seed: int) -> RunFolder:
    """Where a run lives. Its parts are names, so nothing in them can lead elsewhere."""
    return RunFolder(root / preset / slug(str(encoding)) / f"seed-{seed}")


def slug(name: str) -> str:
    """A name as part of a path that every file system takes."""
    return re.sub(r"[^A-Za-z0-9.+=_-]", "@", name)
