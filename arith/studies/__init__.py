"""Studies of trained runs: each is a frame of numbers, with tables and figures.

inputs       comparable runs, their problems, forwards that record attention (torch)
study        the frame of a study with the facts of its runs and problems; CSV, JSON, figures
attention, errors, stability    measure trained runs (torch), write and draw what they measured
attention_figures    draws distances, places and maps of attention
first_errors    the first error of each answer (torch), which `errors` counts
"""

from collections.abc import Iterable
from importlib import import_module
from inspect import signature
from types import ModuleType

from tape_arith.arith.errors import UsageError, unknown

DEFAULT_PROBLEMS = {"attention": 200, "errors": None, "stability": 200}
"""Each study with the number of problems that it measures by default; None: all."""


def load(kind: str, options: Iterable[str] = ()) -> ModuleType:
    """Import a study: `measure`, `to_markdown` and `figures`.

    Raises UsageError if it is unknown, or if its `measure` does not take one of `options`.
    """
    if kind not in DEFAULT_PROBLEMS:
        raise unknown("study", kind, DEFAULT_PROBLEMS)
    module = import_module(f"tape_arith.arith.studies.{kind}")
    if wrong := sorted({*options} - {*signature(module.measure).parameters}):
        raise UsageError(f"study {kind} takes no {' and no '.join(wrong)}: leave it out")
    return module
