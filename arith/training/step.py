"""One step of training: the batch's gradient, summed over groups that fit into memory, and the
update.

Legend: B batch, T tokens, V vocabulary.
"""

import sys
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.data.rows import Rows
from tape_arith.arith.errors import Failure
from tape_arith.arith.scoring.score import logits_of_answers, sent
from tape_arith.arith.tasks.task import Problems
from tape_arith.arith.training.batches import Batches, Source
from tape_arith.arith.training.config import Config
from tape_arith.arith.training.distributed import SINGLE, ProcessGroup
from tape_arith.arith.training.failures import compilation_failure, is_out_of_memory
from tape_arith.arith.training.schedule import Schedule
from tape_arith.models.build import prepare
from tape_arith.models.compile import compile_state_changed, compiling_failed
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Stepper:
    """Steps `decoder` through `schedule`, on the batches of `source` (see Batches), of which it
    takes its share where it is one of several `processes`; `tell` is given what a person is to
    know, a line at a time."""

    def __init__(
        self,
        decoder: Decoder,
        source: Source,
        bucket: Bucket,
        config: Config,
        schedule: Schedule,
        hardware: Hardware,
        *,
        skip: int = 0,
        tell: Callable[[str], None] = to_stderr,
        processes: ProcessGroup = SINGLE,
    ) -> None:
        self.decoder = prepare(decoder, hardware)
        self.batches = Batches(source, bucket, config, skip)
        self.bucket = bucket
        self.config = config
        self.schedule = schedule
        self.hardware = hardware
        self.tell = tell
        self.processes = processes
        self.optimizer = make_optimizer(decoder, config)
        self.step = 0
        self.tokens = 0
        self.finer = 1
        """How many times finer than usual batches are cut, since memory did not suffice."""

    def batch(self, step: int) -> tuple[Problems, NDArray[np.int64]]:
        """The problems of a step, and their keys."""
        return self.batches.of(step)

    def groups(self, problems: Problems, keys: NDArray[np.int64]) -> Iterator[Rows]:
        """A batch as forwards take it: packed, or in padded groups of like lengths."""
        if self.decoder.packs:
            return self.batches.packed(problems, keys, self.finer)
        return self.batches.padded(problems, keys, self.hardware.device, self.finer)

    def train_step(self) -> tuple[Tensor, Tensor]:
        """One step of the optimizer: the loss, summed over answer tokens and divided once by
        their number, and the norm of its gradient before clipping. Tensors, so that nobody waits
        for the device. Where one of them is not finite, weights and moments stay as they are.

        Errors: Failure where not even one row fits into memory.
        """
        problems, keys = self.batch(self.step)
        answer_tokens = int((problems.lengths - problems.prompt_lengths).sum())
        self.decoder.train()
        prepare(self.decoder, self.hardware)  # scoring in float32 takes another backend
        loss = self.accumulated(*self.processes.rows(problems, keys), answer_tokens)
        self.add_up(loss)
        norm = self.updated(loss)
        self.step += 1
        self.tokens += len(problems.tokens)
        return loss, norm

    def accumulated(
        self, problems: Problems, keys: NDArray[np.int64], answer_tokens: int
    ) -> Tensor:
        """The loss of these rows, divided by `answer_tokens`; its gradient is left in the
        parameters. Where memory does not suffice, all of it once more in groups half as large,
        and so in the steps that follow: the same sum but for rounding."""
        while True:
            try:
                return self._accumulated(self.groups(problems, keys), answer_tokens)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    if compiling_failed(error):
                        raise compilation_failure(error) from error
                    raise
            # Not inside the `except`, where the error keeps alive what filled the memory. What
            # some of the groups gave by then is dropped: none of it may count twice.
            self.optimizer.zero_grad(set_to_none=True)
            if self.hardware.device == "cuda":
                torch.cuda.empty_cache()
            most = max(len(rows.place) for rows in self.groups(problems, keys))
            if most == 1:
                raise Failure(
                    f"step {self.step + 1} does not fit in memory, not even one problem at a time: "
                    "train a smaller decoder (num_layers, hidden_size), or where there is more"
                )
            self.finer *= 2
            self.tell(
                f"note: out of memory in step {self.step + 1}, with up to {most} problems at a "
                f"time: batches are cut {self.finer} times finer from here on (slower; the same "
                "gradient but for rounding)"
            )

    def add_up(self, loss: Tensor) -> None:
        """The loss and the gradient of the whole batch, of what each process has of them."""
        if self.processes.size == 1:
            return
        gradients = []
        for _, parameter in trained(self.decoder):
            if parameter.grad is None:  # no row of this batch came here
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        self.processes.all_reduce([loss, *gradients])

    def _accumulated(self, groups: Iterator[Rows], answer_tokens: int) -> Tensor:
        parameters = [parameter for _, parameter in trained(self.decoder)]

        def gradients(rows: Rows) -> tuple[Tensor, tuple[Tensor, ...]]:
            with self.hardware.autocast():
                part = summed_loss(self.decoder, rows, self.hardware.device) / answer_tokens
            return part.detach(), torch.autograd.grad(part, parameters)

        loss = torch.zeros((), device=self.hardware.device)
        alone = compile_state_changed(self.decoder, self.hardware.dtype)
        for part, gradient in self.hardware.parallel_map(gradients, groups, first_alone=alone):
            loss += part
            for parameter, piece in zip(parameters, gradient, strict=True):
                if parameter.grad is None:
                    parameter.grad = laid_out_as(parameter, piece)
                else:
                    parameter.grad.add_(piece)
        return loss

    def updated(self, loss: Tensor) -> Tensor:
        """Clip the gradient in the parameters, update them with it and drop it; its norm before
        clipping. Nothing is updated where `loss` or that norm is not finite."""
        parameters = [parameter for _, parameter in trained(self.decoder)]
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.config.clip)
        factor = self.schedule.factor(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * factor * group["lr_factor"]
        # What torch's own scaler of gradients sets: the fused kernel reads it on the device, and
        # where it is 1 leaves weights, moments and the count of its steps alone.
        self.optimizer.found_inf = (loss.isfinite() & norm.isfinite()).logical_not().float()  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.decoder.pe.after_step()
        return norm


def summed_loss(decoder: Decoder, rows: Rows, device: str) -> Tensor:
    """Cross-entropy summed over the answer tokens, the end token included."""
    logits = logits_of_answers(decoder, rows, device)
    targets = sent(rows.targets[rows.is_answer], device)
    with torch.autocast(device, enabled=False):
        return F.cross_entropy(logits, targets, reduction="sum")


def laid_out_as(parameter: Tensor, piece: Tensor) -> Tensor:
    """`piece` in the memory layout of `parameter`. What `backward` would leave has it;
    `torch.autograd.grad` gives a transposed weight a transposed gradient, which the fused AdamW
    reads in the wrong order on a CPU, without a word, and refuses on CUDA."""
    if piece.stride() == parameter.stride():
        return piece
    return torch.empty_like(parameter).copy_(piece)


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
