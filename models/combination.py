"""Encodings joined with a plus: some that add to the embeddings, and one that attention takes.

Legend: B batch, T tokens, D hidden.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

from torch import Tensor, nn

from models.encoding import PositionalEncoding, State
from models.errors import UsageError
from models.flops import MatMul, Workload
from models.sequences import Sequences


class Combination(PositionalEncoding):
    """Several encodings at once, each with its own indices.

    Every part does to the embeddings what it does by itself, in their order. Attention, and what
    travels between layers, is the last part's: those before it only embed, that is, they leave
    `layer` and `start` as the base class has them. A name has its parts in this order already,
    unless its text hid which of them attends.
    """

    def __init__(self, parts: Mapping[str, PositionalEncoding]) -> None:
        """Of two encodings or more, by their names. Errors: UsageError where they do not go
        together."""
        nn.Module.__init__(self)  # the base's own would make layers that nobody uses
        check(parts)
        parts = dict(sorted(parts.items(), key=lambda item: _attends(item[1])))
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
        """Whole names, for an ending of one part could be one of another's parameters."""
        for i, part in enumerate(self._each()):
            for name, _ in part.named_parameters():
                if name.endswith(part.inert):
                    yield f"parts.{i}.{name}"

    @property
    def attending(self) -> PositionalEncoding:
        """The part whose attention it is."""
        *_, last = self._each()
        return last

    def indices(self, seqs: Sequences) -> Tensor:
        """Those of the attending part; the others take theirs in `embed`."""
        return self.attending.indices(seqs)

    def embed(self, x: Tensor, index: Tensor, seqs: Sequences) -> Tensor:
        *others, last = self._each()
        for part in others:
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


def check(parts: Mapping[str, PositionalEncoding]) -> None:
    """Errors: UsageError where `parts` cannot be joined."""
    whole = "+".join(parts)
    attending = [name for name, part in parts.items() if _attends(part)]
    if len(attending) > 1:
        raise UsageError(
            f"'{whole}': {' and '.join(attending)} each define attention, and one part at most "
            "can; the others only embed"
        )
    for name, part in parts.items():
        if name not in attending and not _overrides(part, "embed"):
            raise UsageError(f"'{whole}': {name} adds nothing to the others; leave it out")


def _attends(part: PositionalEncoding) -> bool:
    """Whether a part defines attention, or what travels between layers."""
    return _overrides(part, "layer", "start")


def _overrides(part: PositionalEncoding, *hooks: str) -> bool:
    return any(getattr(type(part), hook) is not getattr(PositionalEncoding, hook) for hook in hooks)
