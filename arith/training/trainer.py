"""The training loop: a pure function of encoding, config and seed, however it is interrupted."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
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
from tape_arith.arith.scoring.score import score
from tape_arith.arith.tasks.task import Problems
from tape_arith.arith.training.batches import Source
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.evaluation import STATE_PROBLEMS, Metrics, SmallGrid, state_measures
from tape_arith.arith.training.failures import MAX_SKIPPED_IN_A_ROW, NotFinite
from tape_arith.arith.training.schedule import Schedule
from tape_arith.arith.training.step import Stepper, trained
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware

HELD_OUT_PROBLEMS = 512
LONG_SAVE, SAVING_SHARE = 1.0, 0.05
"""If one save takes longer than LONG_SAVE seconds, saves are spaced so that they take at most
SAVING_SHARE of the training: at the paper's size a checkpoint has 1.4 GB."""


class _Progress(Part):
    """The facts of a checkpoint that training resumes from."""

    model_config = ConfigDict(extra="ignore")

    step: Count
    tokens: Count
    seconds: Annotated[float, Field(ge=0, le=1e9)]
    losses: list[Annotated[float, Field(ge=0, le=1e12)]]
    gradient_norm: NonNegative
    skipped: Count
    skipped_in_a_row: Count
    finer: Positive


class Trainer(Stepper):
    """Takes the steps of a schedule, logs and evaluates them, and can be stopped after any step.

    curves        whether to score the small grid on the way
    on_nonfinite  one of POLICIES
    others        as in Stepper
    """

    def __init__(
        self,
        decoder: Decoder,
        source: Source,
        bucket: Bucket,
        config: Config,
        schedule: Schedule,
        hardware: Hardware,
        *,
        curves: bool = True,
        on_nonfinite: str = "stop",
        **others: Any,
    ) -> None:
        super().__init__(decoder, source, bucket, config, schedule, hardware, **others)
        self.curves = curves
        self.on_nonfinite = on_nonfinite
        self.seconds = 0.0
        self.unchecked: list[tuple[Tensor, Tensor]] = []
        """Loss and norm of the last steps, not yet checked for being finite."""
        self.losses: list[Tensor] = []  # of the steps since the last line of metrics
        self.norm = 0.0  # of the last of these
        self.skipped = 0
        self.in_a_row = 0

    def run(
        self,
        *,
        log_every: int,
        evaluate_every: int,
        save_every: int,
        log: Callable[[Metrics], None],
        tick: Callable[[int], None],
        save: Callable[[], None],
        keep: Callable[[], None],
        should_stop: Callable[[], bool],
    ) -> bool:
        """Train to the end of the schedule; return False if `should_stop` ended it earlier.

        save  called every `save_every` steps (less often if it takes long) and when stopped
        keep  called before the first step of the cool-down
        tick  called after every step with its number

        Raises NotFinite: on a CPU at the step itself, on a GPU, which is not waited for, at the
        next line of metrics. Nothing after that step is saved.
        """
        began = time.perf_counter() - self.seconds
        mark = (self.seconds, self.tokens)
        next_save = 0.0
        while self.step < self.schedule.steps:
            if self.step == self.schedule.cooldown_start:
                keep()
            self.unchecked.append(self.train_step())
            last = self.step == self.schedule.steps
            due = self.step % log_every == 0 or last
            if due or self.hardware.device == "cpu":
                self.check_steps()
            if due:
                mean_loss = self.mean_loss()
                self.seconds = time.perf_counter() - began
                metrics = Metrics(
                    step=self.step,
                    loss=mean_loss,
                    learning_rate=self.rate(self.step),
                    gradient_norm=self.norm,
                    tokens=self.tokens,
                    tokens_per_second=(self.tokens - mark[1]) / (self.seconds - mark[0]),
                    seconds=self.seconds,
                    exact_match=None,
                    skipped=self.skipped,
                )
                evaluated = self.processes.first and (self.step % evaluate_every == 0 or last)
                log(self.evaluated(metrics) if evaluated else metrics)
                mark = (time.perf_counter() - began, self.tokens)
            tick(self.step)
            # Asked of all, or some would wait for the others' next gradients in vain.
            stop = self.processes.any(not last and should_stop())
            now = time.perf_counter()
            saving = self.step % save_every == 0 and not last and now >= next_save
            if stop or saving:
                self.check_steps()
                asked = time.perf_counter()
                self.seconds = asked - began
                save()
                saved = time.perf_counter()
                took = saved - asked
                next_save = saved + (took / SAVING_SHARE if took > LONG_SAVE else 0.0)
            if stop:
                return False
        self.check_weights()
        if self.schedule.cooldown_steps == 0:
            keep()
        return True

    def check_steps(self) -> None:
        """Look at the steps at which nobody has looked yet: on a GPU, wait for them.

        Errors: NotFinite for one whose loss or gradient is not, unless such steps are left out,
        and not too many in a row.
        """
        pairs, self.unchecked = self.unchecked, []
        if not pairs:
            return
        told = torch.stack([torch.stack((loss, norm.to(loss))) for loss, norm in pairs]).tolist()
        for step, (loss, norm) in enumerate(told, self.step - len(pairs) + 1):
            if isfinite(loss) and isfinite(norm):
                self.losses.append(pairs[step - self.step - 1][0])
                self.norm = norm
                self.in_a_row = 0
                continue
            what = f"the {'gradient' if isfinite(loss) else 'loss'} is not finite at step {step}"
            what += f" (learning rate {self.rate(step):g})"
            if self.on_nonfinite == "stop":
                raise NotFinite(what)
            self.skipped += 1
            self.in_a_row += 1
            if self.in_a_row == MAX_SKIPPED_IN_A_ROW:
                raise NotFinite(
                    f"{what}, nor was it at the {MAX_SKIPPED_IN_A_ROW - 1} steps before"
                )
            self.tell(f"note: {what}: left out, as {self.skipped} so far")

    def mean_loss(self) -> float:
        """Over the steps since it was last asked. Errors: NotFinite where all were left out."""
        if not self.losses:
            raise NotFinite(
                f"the loss or its gradient is not finite at step {self.step} (learning rate "
                f"{self.rate(self.step):g}), nor was it at any step since the last line of metrics"
            )
        mean = float(torch.stack(self.losses).mean())
        self.losses.clear()
        return mean

    def check_weights(self) -> None:
        """Errors: NotFinite where a weight or a moment is not: no such state is ever saved."""
        tensors = [tensor for _, p in trained(self.decoder) for tensor in (p, *self.moments(p))]
        if not bool(torch.stack([tensor.isfinite().all() for tensor in tensors]).all()):
            rate = f"(learning rate {self.rate(self.step):g})"
            raise NotFinite(f"the weights are not finite after step {self.step} {rate}", False)

    def rate(self, step: int) -> float:
        """The learning rate of the `step`-th step, where no group of parameters has a factor of
        its own."""
        return self.config.learning_rate * self.schedule.factor(step - 1)

    @cached_property
    def small_grid(self) -> SmallGrid | None:
        return SmallGrid.of(self.config) if self.curves else None

    def evaluated(self, metrics: Metrics) -> Metrics:
        """`metrics` with what is looked at now: held-out problems, the small grid, the encoding's
        state."""
        grid, hardware = self.small_grid, self.hardware.for_scoring
        return replace(
            metrics,
            exact_match=self.held_out_exact_match(),
            small_grid=None if grid is None else grid.exact_match(self.decoder, hardware),
            state=state_measures(self.decoder, *self.held_out(STATE_PROBLEMS), hardware),
        )

    def held_out(self, count: int) -> tuple[Problems, NDArray[np.int64]]:
        """Problems of the trained lengths from a stream of their own, and their keys. There
        are so few of the shortest that training sees them too."""
        bucket = replace(self.bucket, split="held-out")
        return bucket.problems(0, count), bucket.keys(0, count)

    def held_out_exact_match(self) -> float:
        """Share of exact answers among held-out problems of the trained lengths."""
        problems, keys = self.held_out(HELD_OUT_PROBLEMS)
        hardware = self.hardware.for_scoring
        return float(score(self.decoder.eval(), problems, keys, hardware).exact.mean())

    def moments(self, parameter: Tensor) -> tuple[Tensor, Tensor]:
        """Return Adam's moments of a parameter; zeros before the first step."""
        moments = self.optimizer.state.get(parameter, {})
        first, second = (
            moments[key] if key in moments else torch.zeros_like(parameter)
            for key in ("exp_avg", "exp_avg_sq")
        )
        return first, second

    def sync_from_first(self) -> None:
        """Continue from the state of the first process, as `restore` would."""
        if self.processes.size == 1:
            return
        tensors, facts = self.state()
        first_facts = json.loads(self.processes.broadcast_text(json.dumps(facts)))
        self.processes.broadcast([tensors[name] for name in sorted(tensors)])
        if not self.processes.first:
            self.restore(tensors, first_facts, "what the first process sent")

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and facts from which `restore` continues exactly. Raises NotFinite."""
        self.check_steps()
        self.check_weights()
        tensors = {f"model/{name}": value for name, value in self.decoder.state_dict().items()}
        for name, parameter in trained(self.decoder):
            tensors[f"exp_avg/{name}"], tensors[f"exp_avg_sq/{name}"] = self.moments(parameter)
        facts = {
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "losses": [float(loss) for loss in self.losses],
            "gradient_norm": self.norm,
            "skipped": self.skipped,
            "skipped_in_a_row": self.in_a_row,
            "finer": self.split_factor,
        }
        return tensors, facts

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any], path: object) -> None:
        """Continue from a state. Raises Failure, naming `path`, if it does not fit."""
        try:
            progress = validated(facts, _Progress)
            if not progress.skipped <= progress.step <= self.config.steps:
                raise InvalidValue(f"step {progress.step} of {self.config.steps}")
            device = self.hardware.device
            self.step, self.tokens = progress.step, progress.tokens
            self.seconds, self.norm = progress.seconds, progress.gradient_norm
            self.losses = [torch.tensor(loss, device=device) for loss in progress.losses]
            self.skipped, self.in_a_row = progress.skipped, progress.skipped_in_a_row
            self.split_factor = progress.finer
            for name, value in self.decoder.state_dict().items():
                value.copy_(fitting(tensors[f"model/{name}"], value))
            for name, parameter in trained(self.decoder):
                self.optimizer.state[parameter] = {
                    # Adam counts the steps that it took.
                    "step": torch.tensor(float(self.step - self.skipped), device=device),
                    "exp_avg": fitting(tensors[f"exp_avg/{name}"], parameter).clone(),
                    "exp_avg_sq": fitting(tensors[f"exp_avg_sq/{name}"], parameter).clone(),
                }
        except (KeyError, TypeError, ValueError) as error:
            raise Failure(f"{path} is not a state of this run: {error}") from error


def fitting(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Return `tensor`. Raises ValueError unless it has the shape and type of `parameter`."""
    if tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
        raise ValueError(f"shape {tuple(tensor.shape)} in place of {tuple(parameter.shape)}")
    return tensor
