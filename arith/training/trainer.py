"""The steps of a training and its state: a function of encoding, config and seed alone."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from math import isfinite
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from torch import Tensor

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.documents import Count, InvalidValue, NonNegative, Part, Positive, validated
from tape_arith.arith.errors import Failure
from tape_arith.arith.runs.config import Config, Policy
from tape_arith.arith.runs.metrics import EVALUATE_EVERY, LOG_EVERY
from tape_arith.arith.scoring.score import score
from tape_arith.arith.stopping import Stopped, is_urgent
from tape_arith.arith.tasks.task import Problems
from tape_arith.arith.training.evaluation import STATE_PROBLEMS, SmallGrid, state_measures
from tape_arith.arith.training.step import Stepper
from tape_arith.models.runner import Runner

HELD_OUT_PROBLEMS = 512
MAX_SKIPPED_IN_A_ROW = 10
"""The number of skipped steps in a row that ends training: as their problems differ, the weights
must be the cause."""

Line = dict[str, Any]
"""Content of a line of metrics.jsonl; `_MetricsLine` in runs/metrics.py lists its fields."""


class NotFinite(Failure):
    """Training diverged. `may_skip` says whether leaving this step out could help."""

    def __init__(self, message: str, may_skip: bool = True) -> None:
        super().__init__(message)
        self.may_skip = may_skip


class _Progress(Part):
    """The attributes of a trainer that a checkpoint stores with its tensors."""

    model_config = ConfigDict(extra="ignore")

    step: Count
    tokens: Count
    seconds: Annotated[float, Field(ge=0, le=1e9)]
    losses: list[Annotated[float, Field(ge=0, le=1e12)]]
    gradient_norm: NonNegative
    skipped: Count
    skipped_in_a_row: Count
    finer: Positive
    owed: Line | None = None


class Trainer(Stepper):
    """Takes the steps of a schedule, and checks and measures them; its state can be saved.

    curves        whether to score the small grid during training
    on_nonfinite  what to do at a step whose loss or gradient is not finite
    options       the other arguments of Stepper
    """

    log_every, evaluate_every = LOG_EVERY, EVALUATE_EVERY

    def __init__(
        self,
        runner: Runner,
        bucket: Bucket,
        config: Config,
        *,
        curves: bool = True,
        on_nonfinite: Policy = "stop",
        **options: Any,
    ) -> None:
        super().__init__(runner, bucket, config, **options)
        self.curves = curves
        self.on_nonfinite = on_nonfinite
        self.seconds = 0.0
        """Seconds of training when `read_clock` was last called."""
        self._began: float | None = None
        self._last_line = (0.0, 0)
        """Seconds and tokens of training until the last line was written."""
        self.unchecked: list[tuple[Tensor, Tensor]] = []
        """Loss and gradient norm of the last steps, which `check_steps` has not checked yet."""
        self.losses: list[Tensor] = []  # of the steps since the last line of metrics
        self.gradient_norm = 0.0  # of the last finite step
        self.skipped = 0
        self.skipped_in_a_row = 0
        self.owed: Line | None = None
        """A line whose evaluation was stopped; `advance` completes it in place of a step."""

    @property
    def done(self) -> bool:
        """Tell whether all steps of the schedule are taken, and all lines of metrics made."""
        return self.step >= self.schedule.steps and self.owed is None

    def advance(self, should_stop: Callable[[], bool] = lambda: False) -> Line | None:
        """Take a step; return the line of metrics that is due every `log_every` steps, else None.

        If `should_stop` is true while it evaluates, the line is `owed`. Raises NotFinite: on a CPU
        at the step itself; on a GPU, which works asynchronously, at the next line of metrics or
        when the state is read.
        """
        if self._began is None:
            self._began = time.perf_counter() - self.seconds
            self._last_line = self.seconds, self.tokens
        if self.owed is None:
            self.unchecked.append(self.train_step())
            due = self.step % self.log_every == 0 or self.step == self.schedule.steps
            if due or self.hardware.device == "cpu":
                self.check_steps()
            if not due:
                return None
            self.owed = self._metrics_line()
        else:
            # It was started before. A time limit waits for it now, or might always stop it.
            should_stop = partial(is_urgent, should_stop)
        try:
            line = self.owed | self._evaluation(should_stop)
        except Stopped:
            return None
        self.owed = None
        self._last_line = time.perf_counter() - self._began, self.tokens
        return line

    def stops(self, should_stop: Callable[[], bool]) -> bool:
        """Tell whether any process is asked to stop before the last step.

        All processes decide together; otherwise some would wait for gradients that never come.
        """
        return self.processes.any(not self.done and should_stop())

    def read_clock(self) -> None:
        """Set `seconds` to those of the training until now, earlier calls included."""
        if self._began is not None:
            self.seconds = time.perf_counter() - self._began

    def check_steps(self) -> None:
        """Check that the steps since the last call are finite; on a GPU, wait for them.

        Raises NotFinite at a step whose loss or gradient is not finite, unless such steps are
        skipped and fewer than MAX_SKIPPED_IN_A_ROW came in a row.
        """
        pairs, self.unchecked = self.unchecked, []
        if not pairs:
            return
        values = torch.stack([torch.stack((loss, norm.to(loss))) for loss, norm in pairs]).tolist()
        first = self.step - len(pairs) + 1
        for step, ((loss, norm), (tensor, _)) in enumerate(zip(values, pairs, strict=True), first):
            if isfinite(loss) and isfinite(norm):
                self.losses.append(tensor)
                self.gradient_norm = norm
                self.skipped_in_a_row = 0
                continue
            culprit = "gradient" if isfinite(loss) else "loss"
            fault = f"the {culprit} is not finite at {self._at(step)}"
            if self.on_nonfinite == "stop":
                raise NotFinite(fault)
            self.skipped += 1
            self.skipped_in_a_row += 1
            if self.skipped_in_a_row == MAX_SKIPPED_IN_A_ROW:
                raise NotFinite(
                    f"{fault}, nor was it at the {self.skipped_in_a_row - 1} steps before"
                )
            self.tell(f"note: {fault}: left out ({self.skipped} so far)")

    def check_weights(self) -> None:
        """Raise NotFinite if a weight or a moment is not finite, so that no such state is saved."""
        parameters = self.parameters.values()
        tensors = [tensor for p in parameters for tensor in (p, *self._moments(p))]
        if not bool(torch.stack([tensor.isfinite().all() for tensor in tensors]).all()):
            raise NotFinite(f"the weights are not finite after {self._at(self.step)}", False)

    def rate(self, step: int) -> float:
        """Return the learning rate of `step` (1-based), before the factors of parameter groups."""
        return self.config.learning_rate * self.schedule.factor(step - 1)

    def _at(self, step: int) -> str:
        return f"step {step} (learning rate {self.rate(step):g})"

    @cached_property
    def _small_grid(self) -> SmallGrid:
        return SmallGrid.of(self.config)

    @cached_property
    def _scorer(self) -> Runner:
        return self.runner.on(self.hardware.for_scoring)

    def _metrics_line(self) -> Line:
        """Return a line of metrics, without what is measured every `evaluate_every` steps.

        Raises NotFinite if no step since the last line was finite.
        """
        if not self.losses:
            raise NotFinite(
                f"the loss or its gradient is not finite at {self._at(self.step)}, nor at any step "
                "since the last line of metrics"
            )
        loss = float(torch.stack(self.losses).mean())
        self.losses.clear()
        self.read_clock()
        tokens, seconds = self.tokens - self._last_line[1], self.seconds - self._last_line[0]
        line: Line = {
            "step": self.step,
            "loss": loss,
            "learning_rate": self.rate(self.step),
            "gradient_norm": self.gradient_norm,
            "tokens": self.tokens,
            "tokens_per_second": tokens / seconds,
            "seconds": self.seconds,
            "exact_match": None,
        }
        return line | ({"skipped": self.skipped} if self.skipped else {})

    def _evaluation(self, should_stop: Callable[[], bool]) -> Line:
        """Return what is measured every `evaluate_every` steps, if this is such a step.

        Raises Stopped if `should_stop` is true before the end.
        """
        due = self.step % self.evaluate_every == 0 or self.step == self.schedule.steps
        if not (due and self.processes.first):
            return {}
        measures: Line = {"exact_match": self.held_out_exact_match(should_stop)}
        if self.curves:
            measures["small_grid"] = self._small_grid.exact_match(self._scorer, should_stop)
        state = state_measures(self._scorer, *self.held_out(STATE_PROBLEMS))
        return measures | ({"state": state} if state else {})

    def held_out(self, count: int) -> tuple[Problems, NDArray[np.int64]]:
        """Return problems of the trained lengths from a separate stream, and their keys.

        The shortest problems are so few that training sees them too.
        """
        bucket = replace(self.bucket, split="held-out")
        return bucket.problems(0, count), bucket.keys(0, count)

    def held_out_exact_match(self, should_stop: Callable[[], bool] = lambda: False) -> float:
        """Return the share of exact answers among held-out problems of the trained lengths."""
        self.decoder.eval()
        problems, keys = self.held_out(HELD_OUT_PROBLEMS)
        return float(score(self._scorer, problems, keys, should_stop=should_stop).exact.mean())

    def _moments(self, parameter: Tensor) -> tuple[Tensor, Tensor]:
        """Return Adam's moments of a parameter; zeros before the first step."""
        moments = self.optimizer.state.get(parameter)
        if not moments:
            return torch.zeros_like(parameter), torch.zeros_like(parameter)
        return moments["exp_avg"], moments["exp_avg_sq"]

    def sync_from_first(self) -> None:
        """Replace this process's state by that of the first process."""
        if self.processes.size == 1:
            return
        tensors, facts = self.state()
        first_facts = json.loads(self.processes.broadcast_text(json.dumps(facts)))
        self.processes.broadcast([tensors[name] for name in sorted(tensors)])
        if not self.processes.first:
            self.restore(tensors, first_facts, "the state of the first process")

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors and facts from which `restore` continues exactly. Raises NotFinite."""
        self.check_steps()
        self.check_weights()
        tensors = {f"model/{name}": value for name, value in self.decoder.state_dict().items()}
        for name, parameter in self.parameters.items():
            tensors[f"exp_avg/{name}"], tensors[f"exp_avg_sq/{name}"] = self._moments(parameter)
        facts = {name: getattr(self, name) for name in _Progress.model_fields}
        if self.owed is None:
            del facts["owed"]
        return tensors, facts | {"losses": [float(loss) for loss in self.losses]}

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any], origin: object) -> None:
        """Continue from a state. Raises Failure, naming its `origin`, if it is not of this run."""
        try:
            progress = validated(facts, _Progress)
            if not progress.skipped <= progress.step <= self.config.steps:
                raise InvalidValue(f"step {progress.step} of {self.config.steps}")
            for name, value in progress:
                setattr(self, name, value)
            device = self.hardware.device
            self.losses = [torch.tensor(loss, device=device) for loss in progress.losses]
            for name, value in self.decoder.state_dict().items():
                value.copy_(_fitting(tensors[f"model/{name}"], value))
            for name, parameter in self.parameters.items():
                self.optimizer.state[parameter] = {
                    # Adam does not count skipped steps.
                    "step": torch.tensor(float(self.step - self.skipped), device=device),
                    "exp_avg": _fitting(tensors[f"exp_avg/{name}"], parameter).clone(),
                    "exp_avg_sq": _fitting(tensors[f"exp_avg_sq/{name}"], parameter).clone(),
                }
        except (KeyError, ValueError) as error:
            raise Failure(f"{origin} is not a state of this run: {error}") from error


def _fitting(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Return `tensor`. Raises ValueError unless it has the shape and type of `parameter`."""
    if tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
        raise ValueError(f"shape {tuple(tensor.shape)} in place of {tuple(parameter.shape)}")
    return tensor
