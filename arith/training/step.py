"""One training step: the gradient of a batch, summed over groups that fit in memory, and AdamW."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import Rows
from tape_arith.arith.decoders.failures import compilation_failure, fitting
from tape_arith.arith.errors import is_out_of_memory
from tape_arith.arith.runs.config import Config, Schedule
from tape_arith.arith.scoring.score import answer_logits, to_device
from tape_arith.arith.tasks.task import Problems
from tape_arith.arith.terminal import say
from tape_arith.arith.training.batches import Batches, Source
from tape_arith.arith.training.distributed import SINGLE, ProcessGroup
from tape_arith.arith.training.recorded import PackedBatch, RecordedGradient
from tape_arith.models.compiling import compiling_failed
from tape_arith.models.decoder import Decoder
from tape_arith.models.runner import Runner


class Stepper:
    """Takes training steps of a runner's decoder on the problems of `bucket`.

    source     where the problems come from, by default `bucket`
    schedule   learning rates, by default those of `config`
    skip       number of problems that the run before this one was trained on
    tell       prints a line for people
    processes  the processes that share each batch
    """

    def __init__(
        self,
        runner: Runner,
        bucket: Bucket,
        config: Config,
        *,
        source: Source | None = None,
        schedule: Schedule | None = None,
        skip: int = 0,
        tell: Callable[[str], None] = say,
        processes: ProcessGroup = SINGLE,
    ) -> None:
        self.runner = runner
        self.decoder = runner.decoder
        self.parameters = trained_parameters(runner.decoder)
        self.hardware = runner.hardware
        self.bucket = bucket
        self.config = config
        self.batches = Batches(source or bucket, bucket, config, skip)
        self.schedule = schedule or config.schedule()
        self.tell = tell
        self.processes = processes
        self.optimizer = _make_optimizer(runner.decoder, config)
        self._recorded = RecordedGradient(partial(packed_gradient, runner), tell)
        self.step = 0
        self.tokens = 0
        self.finer = 1
        """Factor by which groups are smaller than normal; it doubles when memory runs out."""

    @property
    def why_not_recorded(self) -> str | None:
        """Say why steps are not recorded as a CUDA graph; None if they are."""
        if not self.hardware.recorded:
            return "not asked for"
        if not self.runner.packs:
            return "rows are padded, to other shapes in each step"
        if self.processes.size > 1:
            return "several processes share each batch"
        return self._recorded.failure if self.finer == 1 else "batches are cut finer"

    @property
    def graph(self) -> str:
        """Words after others on whether steps are recorded; none if that was not asked for."""
        if not self.hardware.recorded:
            return ""
        why = self.why_not_recorded
        return ", one CUDA graph a step" if why is None else f", no CUDA graph ({why})"

    def timed_step(self) -> float:
        """Take one step; return its seconds, including the work of the device."""
        began = time.perf_counter()
        float(self.train_step()[1])  # waits for the device
        return time.perf_counter() - began

    def groups(self, problems: Problems, keys: NDArray[np.int64]) -> Iterator[Rows]:
        """Split a batch into groups, one per forward: packed, or padded rows of similar length."""
        if self.runner.packs:
            return self.batches.packed(problems, keys, self.finer)
        return self.batches.padded(problems, keys, self.hardware.device, self.finer)

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Take one step; return the mean loss per answer token and the gradient's norm.

        The norm is taken before clipping. Both are tensors, so that the CPU need not wait for the
        device. If one is not finite, weights and moments stay as they are. Raises Failure if not
        even one row fits into memory.
        """
        problems, keys = self.batches.problems(self.step)
        answer_tokens = int((problems.lengths - problems.prompt_lengths).sum())
        self.decoder.train()
        own = self.processes.rows(problems, keys)
        loss = self.accumulate_gradient(*own, answer_tokens, int(keys[0]))
        if self.processes.size > 1:
            parameters = self.parameters.values()
            for parameter in parameters:
                if parameter.grad is None:  # this process got no row of the batch
                    parameter.grad = torch.zeros_like(parameter)
            self.processes.all_reduce([loss, *(p.grad for p in parameters if p.grad is not None)])
        norm = self.update_parameters(loss)
        self.step += 1
        self.tokens += len(problems.tokens)
        return loss, norm

    def accumulate_gradient(
        self, problems: Problems, keys: NDArray[np.int64], answer_tokens: int, batch_key: int = 0
    ) -> Tensor:
        """Return the summed loss / `answer_tokens`; leave its gradient in the parameters.

        `batch_key` is that of `Sequences`. If memory runs out, it repeats with groups half as
        large, now and in later steps, which changes the sum only by rounding.
        """

        def attempt() -> Tensor:
            # The gradients of an earlier attempt are dropped, because they would count twice.
            self.optimizer.zero_grad(set_to_none=True)
            groups = self.groups(problems, keys)
            groups = (rows._replace(batch_key=batch_key) for rows in groups)
            try:
                return self._accumulate(groups, answer_tokens)
            except RuntimeError as error:
                if compiling_failed(error) and not is_out_of_memory(error):
                    raise compilation_failure(error) from error
                raise

        def largest() -> int:
            self.optimizer.zero_grad(set_to_none=True)
            return max(len(rows.source_index) for rows in self.groups(problems, keys))

        return fitting(attempt, self, largest, work=f"step {self.step + 1}", tell=self.tell)

    def _accumulate(self, groups: Iterator[Rows], answer_tokens: int) -> Tensor:
        parameters = [*self.parameters.values()]

        def gradients(rows: Rows) -> Sequence[Tensor]:
            if self.why_not_recorded is None:
                return self._recorded(self._packed(rows, answer_tokens), self._next_packed)
            part = summed_loss(self.runner, rows) / answer_tokens
            return part.detach(), *torch.autograd.grad(part, parameters)

        loss = torch.zeros((), device=self.hardware.device)
        for part, *gradient in self.runner.map(gradients, groups):
            loss += part
            for parameter, piece in zip(parameters, gradient, strict=True):
                if parameter.grad is None:
                    parameter.grad = _match_layout(parameter, piece)
                else:
                    parameter.grad.add_(piece)
        return loss

    def _packed(self, rows: Rows, answer_tokens: int) -> PackedBatch:
        most = self.batches.most_answers
        return PackedBatch.of(rows, answer_tokens, most, self.hardware.device)

    def _next_packed(self) -> PackedBatch:
        """Return the batch of the next step."""
        problems, keys = self.batches.problems(self.step + 1)
        (rows,) = self.groups(problems, keys)
        return self._packed(rows._replace(batch_key=int(keys[0])), len(rows.answers))

    def update_parameters(self, loss: Tensor) -> Tensor:
        """Clip the gradient, update the parameters and return the norm before clipping.

        Nothing is updated if `loss` or the norm is not finite.
        """
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.config.clip)
        factor = self.schedule.factor(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * factor * group["lr_factor"]
        # torch's GradScaler sets this too. The fused kernel reads it on the device; if it is 1,
        # weights, moments and the count of steps stay as they are.
        self.optimizer.found_inf = (loss.isfinite() & norm.isfinite()).logical_not().float()  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.decoder.pe.after_step()
        return norm


def summed_loss(runner: Runner, rows: Rows) -> Tensor:
    """Sum the cross-entropy over the answer tokens, including the end token."""
    targets = to_device(rows.targets[rows.is_answer], runner.hardware.device)
    return F.cross_entropy(answer_logits(runner, rows), targets, reduction="sum")


def packed_gradient(runner: Runner, batch: PackedBatch) -> list[Tensor]:
    """Return the loss of a batch, and its gradient in the layout of each parameter."""
    logits = runner(batch.seqs, batch.chosen)
    loss = F.cross_entropy(logits, batch.targets, reduction="sum") / batch.answer_tokens[0]
    parameters = [*trained_parameters(runner.decoder).values()]
    gradient = torch.autograd.grad(loss, parameters)
    return [loss.detach(), *map(_match_layout, parameters, gradient)]


def _match_layout(parameter: Tensor, piece: Tensor) -> Tensor:
    """Return `piece` in the memory layout of `parameter`.

    `torch.autograd.grad` gives a transposed weight a transposed gradient. The fused AdamW silently
    reads it in the wrong order on a CPU and refuses it on CUDA.
    """
    if piece.stride() == parameter.stride():
        return piece
    return torch.empty_like(parameter).copy_(piece)


def trained_parameters(decoder: Decoder) -> dict[str, torch.nn.Parameter]:
    """Return the trained parameters by name: all, or only the encoding's."""
    return {name: p for name, p in decoder.named_parameters() if p.requires_grad}


def _make_optimizer(decoder: Decoder, config: Config) -> torch.optim.AdamW:
    """Make AdamW, without weight decay for vectors and with the encoding's exceptions."""
    exceptions = {id(p): wish for p, wish in decoder.pe.parameter_groups()}
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for parameter in trained_parameters(decoder).values():
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
