"""Run a decoder on hardware: with an attention backend, in its precision, compiled or not."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from tape_arith.models import compiling
from tape_arith.models.backends import choose_backend
from tape_arith.models.compiling import CompiledBlocks, check_compiler
from tape_arith.models.decoder import Decoder
from tape_arith.models.hardware import Hardware, Item, Result
from tape_arith.models.sequences import Sequences


class Runner:
    """A decoder on its hardware. Several runners may share a decoder.

    hardware  with the name of the backend that was chosen
    packs     whether sequences may come packed end to end
    compiled  the compiled blocks, which runners made by `on` share; None: plain blocks
    finer     how many times finer than usual problems are grouped, because memory ran out

    Moves the decoder to the device. Raises UsageError if the backend cannot do what the encoding
    needs, or blocks cannot be compiled.
    """

    def __init__(
        self, decoder: Decoder, hardware: Hardware, compiled: CompiledBlocks | None = None
    ) -> None:
        # A model in the decoder's place has no blocks, and computes its own attention, if any.
        has_blocks = len(decoder.blocks) > 0
        hardware = replace(hardware, compiled=hardware.compiled and has_blocks)
        check_compiler(hardware)
        self.backend = choose_backend(hardware.attention, decoder.needs, hardware)
        self.hardware = replace(hardware, attention=self.backend.name if has_blocks else "auto")
        self.packs = self.backend.packs and decoder.needs.packed
        self.decoder = decoder.to(hardware.device)
        if hardware.compiled and compiled is None:
            options = compiling.CPU_OPTIONS if hardware.device == "cpu" else {}
            compiled = CompiledBlocks(decoder, **options)
        self.compiled = compiled if hardware.compiled else None
        self.finer = 1

    def __call__(self, seqs: Sequences, chosen: Tensor | None = None) -> Tensor:
        """Return the logits of `Decoder.forward`, computed in the hardware's precision."""
        if self.compiled is not None:
            # Sizes differ between groups: if told so now, torch makes no graph for the first alone.
            for varying in (chosen, seqs.starts):
                if varying is not None:
                    torch._dynamo.maybe_mark_dynamic(varying, 0)
        seqs = replace(seqs, attention=self.backend)
        with self.hardware.autocast():
            blocks = None if self.compiled is None else self.compiled.calls
            logits: Tensor = self.decoder(seqs, chosen, blocks)
        return logits

    def on(self, hardware: Hardware) -> "Runner":
        """Return a runner of the same decoder on other hardware, as in float32."""
        return Runner(self.decoder, hardware, self.compiled)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Apply `function`, which runs the decoder, to each item as `parallel_map` does."""
        alone = self.compiled is not None and self.compiled.may_lack_graphs(
            self.decoder.training, self.hardware.dtype
        )
        return self.hardware.parallel_map(function, items, first_alone=alone)
