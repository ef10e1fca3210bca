"""Say what each hook of an encoding returns, and raise if it returns something else.

Legend: B batch, T tokens, D hidden, H heads, K head dim.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tape_arith.models.attention import Eager
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import MatMul, PositionalEncoding, PositionalLayer
from tape_arith.models.families.rotary import RotaryLayer
from tape_arith.models.families.scores import AdditiveBiasLayer, CommonAdditiveBias, ScoresLayer
from tape_arith.models.sequences import Sequences


class Returns(NamedTuple):
    """What a hook returns: in words, and as a test of a result, given the legend's numbers."""

    text: str
    is_met: Callable[[Any, dict[str, int]], bool]


def _tensor(axes: str, *dtypes: torch.dtype) -> Returns:
    """Describe a tensor with axes such as "B or 1, T", of one of `dtypes` if there are any."""
    alternatives = [axis.split(" or ") for axis in axes.split(", ")]

    def is_met(result: Any, sizes: dict[str, int]) -> bool:
        return (
            isinstance(result, Tensor)
            and (not dtypes or result.dtype in dtypes)
            and result.ndim == len(alternatives)
            and all(
                length in [sizes.get(letter, 1) for letter in letters]
                for length, letters in zip(result.shape, alternatives, strict=True)
            )
        )

    return Returns(" ".join([*map(_dtype_name, dtypes[:1]), f"[{axes}]"]), is_met)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def describe(result: Any) -> str:
    if isinstance(result, Tensor):
        return f"{_dtype_name(result.dtype)} {list(result.shape)}"
    if isinstance(result, list | tuple):
        return f"{type(result).__name__}({', '.join(map(describe, result))})"
    return "None" if result is None else f"a value of type {type(result).__name__}"


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors among the arguments of a function, or in its result."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Sequences):
        yield from tensors_in([value.tokens, value.final_length, value.key])
        yield from tensors_in([value.starts, value.query_scale])
    elif isinstance(value, list | tuple | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(inner)


def _is_state(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, tuple) and all(map(_is_state, value)))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_wish(pair: Any) -> bool:
    return (
        isinstance(pair, tuple)
        and len(pair) == 2
        and isinstance(pair[0], nn.Parameter)
        and isinstance(pair[1], dict)
        and pair[1].keys() <= {"weight_decay", "lr_factor"}
        and all(0 <= wish < inf for wish in pair[1].values())
    )


def _each(test: Callable[[Any], bool]) -> Callable[[Any, dict[str, int]], bool]:
    return lambda result, _: isinstance(result, Iterable) and all(map(test, result))


_FLOAT = torch.float64
"""The type of the decoders that are checked."""
_HEADS = _tensor("B, T, H, K", _FLOAT)
_SCORES = _tensor("B, H, T, T")
_BIAS = _tensor("B or 1, H or 1, longest, longest")  # T unless packed
_MEASURE = _tensor("B or 1, T")
_STATE = Returns("the state, a NamedTuple of tensors or ()", lambda result, _: _is_state(result))
_RETURNS: dict[type[nn.Module], dict[str, Returns]] = {
    PositionalEncoding: {
        "indices": _tensor("B or 1, T", torch.int64, _FLOAT),
        "embed": _tensor("B, T, D", _FLOAT),
        "start": _STATE,
        "measures": Returns(
            f"a dict of tensors {_MEASURE.text}",
            lambda result, sizes: (
                isinstance(result, dict)
                and all(_MEASURE.is_met(value, sizes) for value in result.values())
            ),
        ),
        "inner_products": Returns(
            f"{_BIAS.text}, or None",
            lambda result, sizes: result is None or _BIAS.is_met(result, sizes),
        ),
        "products": Returns(
            "MatMuls of whole numbers",
            _each(lambda one: isinstance(one, MatMul) and _is_count(one.multiply_adds)),
        ),
        "multiply_adds": Returns("a whole number", lambda result, _: _is_count(result)),
        "parameter_groups": Returns(
            "pairs of a parameter, each once, and a dict with weight_decay or lr_factor, 0 or more",
            lambda result, sizes: (
                _each(_is_wish)(result, sizes)
                and len({id(parameter) for parameter, _ in result}) == len(list(result))
            ),
        ),
    },
    PositionalLayer: {
        "attend": Returns(
            f"the heads, {_HEADS.text}, and {_STATE.text}",
            lambda result, sizes: (
                isinstance(result, tuple)
                and len(result) == 2
                and _HEADS.is_met(result[0], sizes)
                and _is_state(result[1])
            ),
        ),
        "update": _STATE,
    },
    CommonAdditiveBias: {"bias": _BIAS},
    AdditiveBiasLayer: {"bias": _BIAS},
    ScoresLayer: {"scores": _SCORES, "weights": _SCORES},
    RotaryLayer: {"turn": _HEADS},
}


class WatchedHooks:
    """The hooks of a decoder, which from now on raise AssertionError if their result is wrong."""

    def __init__(self, decoder: Decoder) -> None:
        config = decoder.config
        self.decoder = decoder
        self.sizes = {"B": 1, "T": 1, "D": config.hidden_size}
        self.sizes |= {"H": config.num_heads, "K": config.head_dim}
        for module in decoder.pe.modules():
            for base, hooks in _RETURNS.items():
                for hook, returns in hooks.items() if isinstance(module, base) else ():
                    name, function = f"{type(module).__name__}.{hook}", getattr(module, hook)
                    vars(module)[hook] = partial(self._call, name, function, returns)

    def _call(self, name: str, function: Any, returns: Returns, *args: Any, **keywords: Any) -> Any:
        assert callable(function), f"{name} is {describe(function)}, which hides the hook"
        tensors = list(tensors_in([args, keywords]))
        before = [tensor._version for tensor in tensors]
        result = function(*args, **keywords)
        changed = [t for t, version in zip(tensors, before, strict=True) if t._version != version]
        assert not changed, f"{name} changes in place what it is given, {describe(changed[0])}"
        if isinstance(result, Iterator):
            result = list(result)
        sizes = ", ".join(f"{letter} = {self.sizes[letter]}" for letter in "BTDHK")
        assert returns.is_met(result, self.sizes), (
            f"{name} returned {describe(result)}; it returns {returns.text}"
            + (f" (here {sizes})" if "[" in returns.text else "")
        )
        return result

    def run(self, seqs: Sequences) -> list[Any]:
        """Call the hooks of a forward; return the states that enter the blocks."""
        rows, tokens = seqs.tokens.shape
        self.sizes |= {"B": rows, "T": tokens, "longest": seqs.width}
        states = []

        def watch(layer: int, kind: str, value: Any) -> None:
            if kind == "state":
                states.append(value)

        with torch.no_grad():
            self.decoder(replace(seqs, watch=watch, attention=self._attend))
        return states

    def _attend(
        self, q: Tensor, k: Tensor, values: tuple[Tensor, ...], seqs: Sequences, **keywords: Any
    ) -> tuple[Tensor, ...]:
        """Compute attention, unless `needs` says less than it is asked for."""
        needs, bias = self.decoder.needs, keywords["bias"]
        lacks_need = {
            'bias="learned", packed=False': bias is not None and needs.bias == "none",
            f"values={len(values)}": len(values) > needs.values,
            f"query={-(-q.shape[-1] // needs.width)}": q.shape[-1] > needs.query * needs.width,
        }
        missing = [need for need, lacks in lacks_need.items() if lacks]
        assert not missing, f"attention gets more than `needs` says: Needs({', '.join(missing)})"
        assert bias is None or _BIAS.is_met(bias, self.sizes), (
            f"attention gets the bias {describe(bias)}; it takes {_BIAS.text}"
        )
        return Eager()(q, k, values, seqs, **keywords)
