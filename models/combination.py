"""Join encodings with a plus, as in "abacus+fire"."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from torch import Tensor, nn

from tape_arith.models.encoding import MatMul, PositionalEncoding, State, Workload
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences


class Combination(PositionalEncoding):
    """Encodings joined with a plus, each with its own indices.

    The parts embed one after the other, each as if alone. Only the last part, `attending`, defines
    attention and the state between layers; the others inherit `layer` and `start` unchanged.

    What they draw is independent: those before the last get other keys, unless they have a `stream`
    of their own.
    """

    attending: PositionalEncoding
    layers: nn.ModuleList

    def __init__(self, parts: Mapping[str, PositionalEncoding]) -> None:
        """Join two or more encodings. Raises UsageError if they cannot be joined."""
        nn.Module.__init__(self)  # the base class would build unused layers
        _check_joinable(parts)
        self.each = tuple(sorted(parts.values(), key=lambda part: defines_attention(type(part))))
        *self.embedding, attending = self.each
        self.setting = attending.setting
        self.parts = nn.ModuleList(self.each)
        # Not in torch's registry, so that a checkpoint names each parameter once, under `parts`.
        vars(self).update(attending=attending, layers=attending.layers)
        packed = all(part.needs.packed for part in self.each)
        self.needs = attending.needs._replace(packed=packed)
        # Full names, because a suffix may match a parameter of another part.
        self.inert = tuple(
            f"parts.{i}.{name}"
            for i, part in enumerate(self.each)
            for name, _ in part.named_parameters()
            if name.endswith(part.inert)
        )

    def indices(self, seqs: Sequences) -> Tensor:
        """Return the indices of the attending part; `embed` asks the other parts for theirs."""
        return self.attending.indices(seqs)

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        for number, part in enumerate(self.embedding, 1):
            # In the upper bytes, because a change of the lowest gives the key of another sequence.
            stream = int.from_bytes(bytes([number]) + b"joined\0")
            own = seqs if part.stream else replace(seqs, key=seqs.key ^ stream)
            x = part.embed(x, part.indices(own), own)
        return self.attending.embed(x, index, seqs)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        return self.attending.start(x, index, seqs)

    def query_scale(self, seqs: Sequences) -> Tensor | None:
        return self.attending.query_scale(seqs)

    def trained_reach(self) -> dict[str, int]:
        limits = [limit for part in self.each for limit in part.trained_reach().items()]
        return {unit: min(n for u, n in limits if u == unit) for unit, _ in limits}

    def measures(self, first: State, state: State) -> dict[str, Tensor]:
        return self.attending.measures(first, state)

    def inner_products(self, state: State) -> Tensor | None:
        return self.attending.inner_products(state)

    def products(self, extent: Workload) -> Iterable[MatMul]:
        return chain.from_iterable(part.products(extent) for part in self.each)

    def parameter_groups(self) -> Iterable[tuple[nn.Parameter, dict[str, float]]]:
        return chain.from_iterable(part.parameter_groups() for part in self.each)

    def after_step(self) -> None:
        for part in self.each:
            part.after_step()


def _check_joinable(parts: Mapping[str, PositionalEncoding]) -> None:
    """Raise UsageError if `parts` cannot be joined."""
    text = "+".join(parts)
    attending = [name for name, part in parts.items() if defines_attention(type(part))]
    if len(attending) > 1:
        raise UsageError(
            f"'{text}': {' and '.join(attending)} each define attention, and one part at most "
            "can; the others only embed"
        )
    for name, part in parts.items():
        if name not in attending and not _overrides(type(part), "embed"):
            raise UsageError(f"'{text}': {name} adds nothing to the others; leave it out")


def defines_attention(part: Callable[..., Any]) -> bool:
    """Tell whether a class of encodings defines attention or a state between layers."""
    return _overrides(part, "layer", "start")


def _overrides(part: Callable[..., Any], *hooks: str) -> bool:
    return any(getattr(part, hook) is not getattr(PositionalEncoding, hook) for hook in hooks)
