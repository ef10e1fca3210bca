"""Encodings joined with a plus: any number that add to the embeddings, and one for attention.

Legend: B batch, T tokens, D hidden.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

from torch import Tensor, nn

from tape_arith.models.encoding import PositionalEncoding, State
from tape_arith.models.errors import UsageError
from tape_arith.models.flops import MatMul, Workload
from tape_arith.models.sequences import Sequences


class Combination(PositionalEncoding):
    """Several encodings at once, each with its own indices.

    Each part embeds as it does alone, in order. Attention and the state between layers belong to
    the last part; the others leave `layer` and `start` as the base class has them.
    """

    def __init__(self, parts: Mapping[str, PositionalEncoding]) -> None:
        """Join two or more encodings. Raises UsageError if they cannot be joined."""
        nn.Module.__init__(self)  # the base class would build layers that nobody uses
        _check(parts)
        parts = dict(sorted(parts.items(), key=lambda item: defines_attention(type(item[1]))))
        *_, last = parts.values()
        self.setting = last.setting
        self.parts = nn.ModuleList(parts.values())
        # Beside torch's registry: a checkpoint names each parameter once, and these are the last
        # part's already.
        vars(self).update(
            layers=last.layers,
            needs=last.needs._replace(packed=all(part.needs.packed for part in parts.values())),
            inert=tuple(self._inert()),
        )

    def _each(self) -> Iterable[PositionalEncoding]:
        for part in self.parts:
            assert isinstance(part, PositionalEncoding)
            yield part

    def _inert(self) -> Iterable[str]:
        """List inert parameters by whole names: an ending may fit a parameter of another part."""
        for i, part in enumerate(self._each()):
            for name, _ in part.named_parameters():
                if name.endswith(part.inert):
                    yield f"parts.{i}.{name}"

    @property
    def attending(self) -> PositionalEncoding:
        """The part that defines attention."""
        *_, last = self._each()
        return last

    def indices(self, seqs: Sequences) -> Tensor:
        """Return the indices of the attending part; the others take theirs in `embed`."""
        return self.attending.indices(seqs)

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        *first, last = self._each()
        for part in first:
            x = part.embed(x, part.indices(seqs), seqs)
        return last.embed(x, index, seqs)

    def start(self, x: Tensor, index: Tensor, seqs: Sequences) -> State:
        return self.attending.start(x, index, seqs)

    def measures(self, first: State, state: State) -> dict[str, Tensor]:
        return self.attending.measures(first, state)

    def inner_products(self, state: State) -> Tensor | None:
        return self.attending.inner_products(state)

    def products(self, extent: Workload) -> Iterable[MatMul]:
        return chain.from_iterable(part.products(extent) for part in self._each())

    def parameter_groups(self) -> Iterable[tuple[nn.Parameter, dict[str, float]]]:
        return chain.from_iterable(part.parameter_groups() for part in self._each())

    def after_step(self) -> None:
        for part in self._each():
            part.after_step()


def _check(parts: Mapping[str, PositionalEncoding]) -> None:
    """Raises UsageError if `parts` cannot be joined."""
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


def defines_attention(part: type[PositionalEncoding]) -> bool:
    """Whether a class of encodings defines attention or a state between layers."""
    return _overrides(part, "layer", "start")


def _overrides(part: type[PositionalEncoding], *hooks: str) -> bool:
    return any(getattr(part, hook) is not getattr(PositionalEncoding, hook) for hook in hooks)
