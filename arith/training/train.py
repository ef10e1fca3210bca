"""The training loop: a pure function of encoding, config and seed, whenever it is interrupted.

Legend: B batch, T tokens, V vocabulary.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from arith.data.batches import Rows, equal_groups, lead, pack
from arith.data.bucket import Bucket
from arith.data.task import Problems, concatenate, load_task
from arith.errors import Failure
from arith.scoring.score import score, sequences
from arith.training.config import Config
from arith.training.evaluation import STATE_PROBLEMS, Measures, SmallGrid, state_measures
from arith.training.schedule import Schedule
from models.build import prepare
from models.decoder import Decoder
from models.hardware import Hardware

HELD_OUT_PROBLEMS = 512
# On a CPU: more of them leave its caches, fewer are all overhead.
TOKENS_A_GROUP = 2_300


class Source(Protocol):
    """Where problems come from: a Bucket makes them, a Dataset reads them; both are the same."""

    def problems(self, start: int, stop: int) -> Problems: ...


@dataclass(frozen=True)
class Metrics:
    """One line of metrics.jsonl. `loss` is the mean over the steps since the line before, in nats
    a scored token; `exact_match` is of held-out problems of the trained lengths, None where it
    was not taken; `tokens` counts real tokens so far, padding excluded; `small_grid` is what
    `SmallGrid.exact_match` gives and `state` what `state_measures` does, at each evaluation."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    tokens_per_second: float
    seconds: float
    exact_match: float | None
    small_grid: dict[str, Any] | None = None
    state: Measures | None = None

    def content(self) -> dict[str, Any]:
        """What the line says: without the small grid and the state where there are none."""
        content = asdict(self)
        absent = [key for key in ("small_grid", "state") if content[key] is None]
        return {key: value for key, value in content.items() if key not in absent}


class Trainer:
    """Steps `decoder` through `schedule`. Step s takes problems s B .. s B + B - 1 of `source`,
    modulo `config.num_problems`, those of a run that goes on with weights of another as many later
    as were met by then (`skip`). `curves` says whether the small grid is scored on the way."""

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
        skip: int = 0,
    ) -> None:
        self.decoder = prepare(decoder, hardware)
        self.skip = skip
        self.source = source
        self.bucket = bucket
        self.config = config
        self.schedule = schedule
        self.hardware = hardware
        self.optimizer = make_optimizer(decoder, config)
        self.step = 0
        self.tokens = 0
        self.seconds = 0.0
        self.losses: list[Tensor] = []  # of the steps since the last line of metrics
        self.capacity = self.packed_tokens()
        self.curves = curves

    def batch(self, step: int) -> tuple[Problems, NDArray[np.int64]]:
        """The problems of a step, each behind its [BOS] where the config wants some, and their
        keys; at the end of the data it starts over."""
        size, total = self.config.batch_size, self.config.num_problems
        start = self.skip + step * size
        end = start + size
        spans = []
        while start < end:
            first = start % total
            count = min(total - first, end - start)
            # A problem met again is given other random positions.
            spans.append((first, first + count, start // total))
            start += count
        problems = concatenate([self.source.problems(first, stop) for first, stop, _ in spans])
        drawn = [self.bucket.keys(first, stop, draw=epoch) for first, stop, epoch in spans]
        keys = np.concatenate(drawn)
        return lead(problems, keys, self.config.leading_bos), keys

    def packed_tokens(self) -> int:
        """Tokens of a packed batch: the mean of the first batches and four standard deviations
        of rows drawn apart, so that one shape serves (almost) all steps."""
        size, bucket = self.config.batch_size, self.bucket
        few, keys = bucket.problems(0, 16 * size), bucket.keys(0, 16 * size)
        lengths = lead(few, keys, self.config.leading_bos).lengths - 1
        most = size * lengths.mean() + 4 * size**0.5 * lengths.std()
        return -(-int(most) // 128) * 128

    def groups(self, problems: Problems, keys: NDArray[np.int64]) -> Iterator[Rows]:
        """A batch as forwards take it: packed whole, or in padded groups of like lengths."""
        if not self.decoder.packs:
            count = self.config.groups
            if self.hardware.device == "cpu":
                count = max(count, round(len(problems.tokens) / TOKENS_A_GROUP))
            return equal_groups(problems, keys, count)
        every = np.arange(len(problems.lengths))
        task, config = load_task(self.config.task), self.config
        longest = task.longest(config.trained_digits) - 1 + config.leading_bos
        return iter([pack(problems, keys, every, self.capacity, longest)])

    def train_step(self) -> tuple[Tensor, Tensor]:
        """One step of the optimizer: the loss, summed over answer tokens and divided once by
        their number, and the norm of its gradient before clipping. Tensors, so that nobody waits
        for the device."""
        problems, keys = self.batch(self.step)
        answer_tokens = int((problems.lengths - problems.prompt_lengths).sum())
        self.decoder.train()
        parameters = [parameter for _, parameter in trained(self.decoder)]

        def gradients(rows: Rows) -> tuple[Tensor, tuple[Tensor, ...]]:
            with self.hardware.autocast():
                part = summed_loss(self.decoder, rows, self.hardware.device) / answer_tokens
            return part.detach(), torch.autograd.grad(part, parameters)

        prepare(self.decoder, self.hardware)  # scoring in float32 takes another backend
        groups = self.groups(problems, keys)
        loss = torch.zeros((), device=self.hardware.device)
        for part, gradient in self.hardware.map(gradients, groups):
            loss += part
            for parameter, piece in zip(parameters, gradient, strict=True):
                parameter.grad = piece if parameter.grad is None else parameter.grad.add_(piece)
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.config.clip)
        factor = self.schedule.factor(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * factor * group["lr_factor"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.decoder.pe.after_step()
        self.step += 1
        self.tokens += len(problems.tokens)
        return loss, norm

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
        """Train to the end of the schedule; True when it is reached, False when `should_stop`
        said so after a step. `save` is called every `save_every` steps and when stopped, `keep`
        before the first step of the cool-down, `tick` with the step after every step."""
        began = time.perf_counter() - self.seconds
        mark = (self.seconds, self.tokens)
        while self.step < self.schedule.steps:
            if self.step == self.schedule.cooldown_start:
                keep()
            loss, norm = self.train_step()
            self.losses.append(loss)
            last = self.step == self.schedule.steps
            if self.step % log_every == 0 or last:
                mean_loss = float(torch.stack(self.losses).mean())
                self.losses.clear()
                self.seconds = time.perf_counter() - began
                self.check_finite(mean_loss, norm)
                rate = (self.tokens - mark[1]) / (self.seconds - mark[0])
                due = self.step % evaluate_every == 0 or last
                metrics = Metrics(
                    step=self.step,
                    loss=mean_loss,
                    learning_rate=self.learning_rate,
                    gradient_norm=float(norm),
                    tokens=self.tokens,
                    tokens_per_second=rate,
                    seconds=self.seconds,
                    exact_match=None,
                )
                log(self.evaluated(metrics) if due else metrics)
                mark = (time.perf_counter() - began, self.tokens)
            tick(self.step)
            stop = not last and should_stop()
            if stop or (self.step % save_every == 0 and not last):
                self.check_finite(loss, norm)
                self.seconds = time.perf_counter() - began
                save()
            if stop:
                return False
        if self.schedule.cooldown_steps == 0:
            keep()
        return True

    def check_finite(self, loss: float | Tensor, norm: Tensor) -> None:
        """Errors: Failure where training went astray; no state of it is saved."""
        if not (math.isfinite(float(loss)) and math.isfinite(float(norm))):
            raise Failure(
                f"the loss or its gradient is not finite at step {self.step} (learning "
                f"rate {self.learning_rate:g}): lower learning_rate, then train again"
            )

    @cached_property
    def small_grid(self) -> SmallGrid | None:
        return SmallGrid.of(self.config) if self.curves else None

    def evaluated(self, metrics: Metrics) -> Metrics:
        """`metrics` with what is looked at now: held-out problems, the small grid, the encoding's
        state."""
        grid = self.small_grid
        return replace(
            metrics,
            exact_match=self.held_out_exact_match(),
            small_grid=None if grid is None else grid.exact_match(self.decoder, self.hardware),
            state=state_measures(self.decoder, *self.held_out(STATE_PROBLEMS), self.hardware),
        )

    def held_out(self, count: int) -> tuple[Problems, NDArray[np.int64]]:
        """Problems of the trained lengths that no step takes, and their keys."""
        bucket = replace(self.bucket, split="held-out")
        return bucket.problems(0, count), bucket.keys(0, count)

    def held_out_exact_match(self) -> float:
        """Share of exact answers among held-out problems of the trained lengths."""
        problems, keys = self.held_out(HELD_OUT_PROBLEMS)
        return float(score(self.decoder.eval(), problems, keys, self.hardware).exact.mean())

    @property
    def learning_rate(self) -> float:
        """Of the step taken last, where no group of parameters has a factor of its own."""
        return self.config.learning_rate * self.schedule.factor(self.step - 1)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and facts from which `restore` continues exactly."""
        tensors = {f"model/{name}": value for name, value in self.decoder.state_dict().items()}
        for name, parameter in trained(self.decoder):
            # Before the first step there are no moments yet: they begin as zeros.
            moments = self.optimizer.state.get(parameter, {})
            for moment in ("exp_avg", "exp_avg_sq"):
                tensors[f"{moment}/{name}"] = moments.get(moment, torch.zeros_like(parameter))
        facts = {
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "losses": [float(loss) for loss in self.losses],
        }
        return tensors, facts

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any], path: object) -> None:
        """Continue from a state. Errors: Failure, naming `path`, where it does not fit."""
        try:
            self.step, self.tokens = int(facts["step"]), int(facts["tokens"])
            self.seconds = float(facts["seconds"])
            device = self.hardware.device
            self.losses = [torch.tensor(loss, device=device) for loss in facts["losses"]]
            for name, value in self.decoder.state_dict().items():
                value.copy_(fitting(tensors[f"model/{name}"], value))
            for name, parameter in trained(self.decoder):
                self.optimizer.state[parameter] = {
                    "step": torch.tensor(float(self.step), device=device),
                    "exp_avg": fitting(tensors[f"exp_avg/{name}"], parameter).clone(),
                    "exp_avg_sq": fitting(tensors[f"exp_avg_sq/{name}"], parameter).clone(),
                }
        except (KeyError, TypeError, ValueError) as error:
            raise Failure(f"{path} is not a state of this run: {error}") from error


def summed_loss(decoder: Decoder, rows: Rows, device: str) -> Tensor:
    """Cross-entropy summed over the answer tokens, the end token included."""
    where = torch.from_numpy(rows.answers).to(device)
    targets = torch.from_numpy(rows.targets[rows.is_answer]).to(device)
    logits = decoder(sequences(rows, device), where)
    with torch.autocast(device, enabled=False):
        return F.cross_entropy(logits, targets, reduction="sum")


def trained(decoder: Decoder) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters that training changes, by name: all, or the encoding's own."""
    return [(name, p) for name, p in decoder.named_parameters() if p.requires_grad]


def make_optimizer(decoder: Decoder, config: Config) -> torch.optim.AdamW:
    """AdamW. Norms get no weight decay; what the encoding names gets what it says."""
    exceptions = {id(p): wish for p, wish in decoder.pe.parameter_groups()}
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for _, parameter in trained(decoder):
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        wish = exceptions.get(id(parameter), {})
        key = (wish.get("weight_decay", decay), wish.get("lr_factor", 1.0))
        groups.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "weight_decay": decay, "lr_factor": factor}
            for (decay, factor), parameters in groups.items()
        ],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def fitting(tensor: Tensor, parameter: Tensor) -> Tensor:
    """`tensor`, which must have the shape and type of `parameter`."""
    if tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
        raise ValueError(f"shape {tuple(tensor.shape)} in place of {tuple(parameter.shape)}")
    return tensor
