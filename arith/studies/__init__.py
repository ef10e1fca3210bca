"""Studies of trained runs: each is a frame of numbers, with tables and figures.

inputs       comparable runs, their problems, forwards that record attention (torch)
study        the frame of a study with the facts of its runs and problems; CSV, JSON, figures
attention, errors, stability    measure trained runs (torch), write and draw what they measured
attention_figures    draws distances, places and maps of attention
first_errors    the first error of each answer (torch), which `errors` counts
"""

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from tape_arith.arith.errors import UsageError, unknown

DEFAULT_PROBLEMS = {"attention": 200, "errors": None, "stability": 200}
"""Each study with the number of problems that it measures by default; None: all."""
_OPTIONS = {"attention": {"problem", "layer"}, "errors": set[str](), "stability": {"double"}}


def check_options(kind: str, options: Iterable[str]) -> None:
    """Raise UsageError if a study is unknown or does not take one of `options`."""
    if kind not in _OPTIONS:
        raise unknown("study", kind, _OPTIONS)
    if wrong := sorted({*options} - _OPTIONS[kind]):
        raise UsageError(f"study {kind} takes no {' and no '.join(wrong)}: leave it out")


def load(kind: str) -> ModuleType:
    """Import a study: `measure`, `to_markdown` and `figures`."""
    return import_module(f"tape_arith.arith.studies.{kind}")
