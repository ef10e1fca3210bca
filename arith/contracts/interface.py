"""Check how an encoding's classes fit the decoder: names, tensors, hooks and their state."""

import ast
import inspect
import sys
import textwrap
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache, partial
from itertools import chain
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

from tape_arith.arith.contracts import examples
from tape_arith.arith.contracts.devices import CPUTensors
from tape_arith.arith.contracts.hooks import WatchedHooks, describe
from tape_arith.arith.registry.names import Name
from tape_arith.models.encoding import PositionalEncoding, PositionalLayer, Workload


def check_names(name: Name | str) -> None:
    """Each public method that nothing calls is a hook, and something reads each option.

    Usually: a misspelt hook, which the base class then leaves out without a word; `attend` in the
    encoding in place of the layer that `layer` returns; an option that is only stored.
    """
    pe = examples.decoder_for(name).pe
    unused = [*_misspelt_names(pe), *_unread_options(pe)]
    assert not unused, "; ".join(unused)


def check_tensors(name: Name | str) -> None:
    """Its tensors are parameters or buffers, which move to the device and are kept in checkpoints.

    Usually: `self.x = torch.arange(...)` in place of `self.register_buffer("x", ...)`; modules in a
    list in place of a ModuleList; a tensor of the file or of the class (take plain numbers).
    """
    stray = _stray_tensors(examples.decoder_for(name).pe)
    assert not stray, f"neither parameter nor buffer: {'; '.join(stray)}"


def check_hooks(name: Name | str) -> None:
    """Hooks return what they should, change nothing that they get, and `needs` is all they need.

    Usually: a `return` that was forgotten; an axis that was dropped or added; another type than
    that of x (here float64); `index.mul_(...)` or `x += ...`, which others see too; a bias or wider
    queries that `needs` does not name.
    """
    decoder = examples.decoder_for(name)
    hooks = WatchedHooks(decoder)
    for training in (False, True):
        decoder.train(training)
        hooks.run(examples.example_batch())
        if decoder.pe.needs.packed:
            hooks.run(examples.packed_batch()[0])
    extent = Workload(tokens=2, pairs=4, distances=4)
    decoder.pe.multiply_adds(extent)
    decoder.pe.products(extent)
    decoder.pe.parameter_groups()
    decoder.pe.after_step()


def check_state(name: Name | str) -> None:
    """Hooks keep no tensor on `self`, and studies can read the states that layers pass on.

    Usually: `self.x = ...` in `start`, for `attend` to read, while other threads score with the
    same encoding (the state is for that); `inner_products` of a family with another state.
    """
    decoder = examples.decoder_for(name)
    before = _stray_tensors(decoder.pe)
    for training in (True, False):
        examples.forward(decoder.train(training), examples.example_batch())
    stray = [line for line in _stray_tensors(decoder.pe) if line not in before]
    assert not stray, f"a hook keeps {'; '.join(stray)}"
    first, *_, last = WatchedHooks(decoder).run(examples.example_batch())
    for measure in (partial(decoder.pe.measures, first), decoder.pe.inner_products):
        try:
            measure(last)
        except Exception as error:
            raise AssertionError(f"measures or inner_products: {error}") from error


def check_device(name: Name | str) -> None:
    """Hooks make tensors on the device of what they get, so that a GPU can run them.

    Usually: `torch.arange(n)` in place of `torch.arange(n, device=x.device)`; a list of numbers in
    place of `constant(numbers, like=x)` of models/encoding.py.
    """
    decoder = examples.decoder_for(name)
    batches = [examples.example_batch()] + [examples.packed_batch()[0]] * decoder.pe.needs.packed
    for training in (False, True):
        for seqs in batches:
            with CPUTensors():
                examples.forward(decoder.train(training), seqs)


# ---- names ---------------------------------------------------------------------------------------

_PLAIN = nn.Module()
_NAMES_OF_TORCH = frozenset(dir(_PLAIN))
_PARTS = (PositionalEncoding, PositionalLayer)
_NEAR = 0.65
"""Least similarity of a misspelt name, as difflib measures it."""


def _misspelt_names(pe: PositionalEncoding) -> list[str]:
    """Describe public names that nothing reads and that are nearly those of hooks or settings."""
    lines = set[str]()
    for module in pe.modules():
        if not isinstance(module, _PARTS):
            continue
        lineage = [cls for cls in type(module).__mro__ if issubclass(cls, _PARTS)]
        own = _hooks(cls for cls in lineage if _defines_hooks(cls))
        hooks = _hooks(_PARTS)
        files = {cls.__module__ for cls in lineage if cls not in _PARTS}
        read = set[str]().union(*map(_names_read_in, files))
        for cls in lineage:
            held = {**vars(cls), **(vars(module) if cls is type(module) else {})}
            for name in held.keys() - own.keys() - read - _NAMES_OF_TORCH:
                unused = f"{cls.__name__}.{name} is never used"
                alike = [
                    hook for hook, (_, it) in own.items() if callable(it) == callable(held[name])
                ]
                near = get_close_matches(name, alike, 1, _NEAR)
                if name in hooks:
                    owner, _ = hooks[name]
                    lines.add(f"{unused}: `{name}` is for a {owner.__name__}")
                elif near and not name.startswith("_"):
                    lines.add(f"{unused}: did you mean `{near[0]}`?")
    return sorted(lines)


def _unread_options(pe: PositionalEncoding) -> Iterator[str]:
    """Describe options that `__init__` takes but ignores, or stores where nothing reads them."""
    lineage = [cls for cls in type(pe).__mro__ if issubclass(cls, PositionalEncoding)]
    read_anywhere = set[str]().union(*(_names_read_in(cls.__module__) for cls in lineage))
    for cls in lineage:
        init = vars(cls).get("__init__")
        if init is None or _defines_hooks(cls):
            continue
        reads, stores = _uses_of_names(init)
        for option in inspect.getfullargspec(init).kwonlyargs:
            stored = {target for target, source in stores if source == option}
            if reads[option] == len(stored) and not stored & read_anywhere:
                yield f"{cls.__name__}: nothing reads the option `{option}`, so it has no effect"


def _uses_of_names(function: FunctionType) -> tuple[Counter[str], list[tuple[str, str]]]:
    """Count the reads of each name, and pair attributes with the name that each is set to."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    reads, stores = Counter[str](), list[tuple[ast.expr, ast.expr]]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                reads[name] += 1
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                stores += zip(targets, values, strict=False)
            case ast.Assign(targets=[target], value=value):
                stores.append((target, value))
    return reads, [
        (target.attr, value.id)
        for target, value in stores
        if isinstance(target, ast.Attribute) and isinstance(value, ast.Name)
    ]


def _defines_hooks(cls: type) -> bool:
    in_family = cls.__module__.startswith("tape_arith.models.families.")
    return in_family or cls.__module__ == PositionalEncoding.__module__


def _hooks(classes: Iterable[type]) -> dict[str, tuple[type, Any]]:
    """Return the public names of these classes but torch's: the class that has each, and it."""
    return {
        name: (cls, getattr(cls, name))
        for cls in classes
        for name in dir(cls)
        if not name.startswith("_") and name not in _NAMES_OF_TORCH
    }


@cache
def _names_read_in(module: str) -> frozenset[str]:
    """Return the names, attributes and texts that a module's source reads."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):  # no source
        return frozenset()
    read = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                read.add(name)
            case ast.Constant(value=str(text)):
                read.add(text)
    return frozenset(read)


# ---- tensors -------------------------------------------------------------------------------------

_BUILDING = ("__init__", "layer")
"""Methods that may read any tensor, since they run before a decoder is moved to its device."""


def _stray_tensors(pe: PositionalEncoding) -> list[str]:
    """List the tensors that are neither parameters nor buffers, wherever modules hold them.

    Attributes, also of classes; what containers, objects, closures and partial functions hold;
    variables of a file that its functions read.
    """
    registered = {id(tensor) for tensor in chain(pe.parameters(), pe.buffers())}
    parts = [type(module).__mro__ for module in pe.modules() if isinstance(module, _PARTS)]
    files = {cls.__module__ for lineage in parts for cls in lineage if issubclass(cls, _PARTS)}
    waiting, lines = deque([(type(pe).__name__, pe)]), list[str]()
    seen: dict[int, Any] = {}  # holds the values, so that no other gets the number of one
    while waiting:
        path, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if not isinstance(value, Tensor):
            waiting.extend(_held(path, value, files))
        elif id(value) not in registered:
            lines.append(f"{path}, {describe(value)}")
    return lines


def _held(path: str, value: Any, files: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield what `value` holds, by path; of functions and classes only those of `files`."""
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", inner) for key, inner in value.items())
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from ((f"{path}[{i}]", inner) for i, inner in enumerate(value))
    elif isinstance(value, type):
        held = vars(value) if value.__module__ in files else {}
        yield from ((f"{value.__name__}.{k}", v) for k, v in held.items() if k not in _BUILDING)
    elif isinstance(value, FunctionType):
        if value.__module__ in files:
            yield from _read_by(path, value)
    elif isinstance(value, nn.Module):
        yield from ((cls.__name__, cls) for cls in type(value).__mro__)
        held = {k: v for k, v in vars(value).items() if k not in vars(_PLAIN)}
        for each in (held, value._parameters, value._buffers, value._modules):
            yield from ((f"{path}.{key}", inner) for key, inner in each.items())
    elif not isinstance(value, ModuleType):
        # Of a dataclass, a bound method, a partial function, a property and the like.
        own = (getattr(value, names, None) or () for names in ("__dict__", "__slots__"))
        names = [*chain.from_iterable(own), *_INSIDE]
        yield from ((f"{path}.{key}", getattr(value, key, None)) for key in names)


_INSIDE = ("__func__", "__self__", "__wrapped__", "fget", "func", "args", "keywords")


def _read_by(path: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function reads but is not passed: closure, defaults, global variables."""
    codes = [function.__code__]
    for code in codes:
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        for name in code.co_names:
            yield name, function.__globals__.get(name)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not set yet
            yield f"{name} in {path}", cell.cell_contents
    yield path, (function.__defaults__, function.__kwdefaults__)
