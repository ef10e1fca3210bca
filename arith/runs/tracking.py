"""Send metrics to trackers too; metrics.jsonl stays the source of truth.

A tracker that fails is reported once and left out. It neither ends a run nor changes one.
"""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tape_arith.arith.errors import UsageError, unknown
from tape_arith.arith.runs.folder import RunFolder
from tape_arith.arith.runs.record import RunRecord
from tape_arith.arith.terminal import say

if TYPE_CHECKING:
    from tape_arith.arith.training.evaluation import Metrics

TRACKERS = Path(__file__).parent / "trackers"


class Sink(Protocol):
    """Takes each line of metrics."""

    def __call__(self, metrics: "Metrics") -> None: ...

    def close(self) -> None:
        """Is called once, even after an error."""


def trackers() -> list[str]:
    """Return the names that --track takes: the files of the folder."""
    return sorted(file.stem for file in TRACKERS.glob("*.py") if file.stem != "__init__")


def parse_trackers(text: str | None) -> tuple[str, ...]:
    """Parse "tensorboard,wandb". Raises UsageError for an unknown tracker or a missing package."""
    names = tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    for name in names:
        if name not in trackers():
            raise unknown("tracker", name, trackers())
        package = _module(name).NEEDS
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise UsageError(
                f"--track {name} needs {package}: pip install 'tape-arith[tracking]'"
            ) from error
    return names


@contextmanager
def tracked(
    names: Sequence[str], folder: RunFolder, record: RunRecord, step: int
) -> Iterator[list["SafeSink"]]:
    """Open the trackers of `names` for a run at `step`; close them when the block ends."""
    with ExitStack() as stack:
        sinks = [SafeSink(name, folder, record, step) for name in names]
        for sink in sinks:
            stack.callback(sink.close)
        yield sinks


class SafeSink:
    """A tracker whose errors become one line on stderr."""

    def __init__(self, name: str, folder: RunFolder, record: RunRecord, step: int) -> None:
        self.name = name
        self.sink: Sink | None = None
        with self._guard():
            self.sink = _module(name).opened(folder, record, step)

    def __call__(self, metrics: "Metrics") -> None:
        if self.sink is not None:
            with self._guard():
                self.sink(metrics)

    def close(self) -> None:
        sink, self.sink = self.sink, None
        if sink is not None:
            with self._guard():
                sink.close()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever somebody else's code may raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            say(f"note: {self.name} failed, the run goes on without it ({reason})")
            failed, self.sink = self.sink, None
            if failed is not None:
                with suppress(Exception):
                    failed.close()


def scalars(metrics: "Metrics") -> dict[str, float]:
    """Return the numbers of a line by path, as in "small_grid/by_length/3", without the step."""
    content = metrics.content()
    del content["step"]
    return dict(_numbers(content, ""))


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in parts:
            yield from _numbers(part, f"{path}/{key}" if path else str(key))
    elif value is not None:
        yield path, float(value)


def _module(name: str) -> Any:
    return importlib.import_module(f"tape_arith.arith.runs.trackers.{name}")
