"""What becomes of files: cut, flipped, swapped, replaced by what is no file at all."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Damage = Callable[[Path], None]
FOREIGN = {
    "empty": b"",
    "a zero": b"\x00",
    "noise": bytes(random.Random(0).randrange(256) for _ in range(3000)),
    "zeros": b"\x00" * 3000,
    "ones": b"\xff" * 3000,
    "a pickle": b"\x80\x04\x95\x19\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93.",
    "a zip": b"PK\x03\x04" + b"\x00" * 60,
    "an array of objects": b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'shape': (1,)}",
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep table": b"a" + b".a" * 3000 + b" = 1",
    "deep array": b"a = " + b"[" * 50_000,
    "deep code": b"x = " + b"-" * 80_000 + b"1",
    "deep parentheses": b"x = " + b"(" * 80_000,
    "a number past all": b"[1e400, -1e400]",
    "digits": b"9" * 100_000,
    "a long number in TOML": b"a = " + b"9" * 90_000,
    "UTF-16": '{"schema": 1}'.encode("utf-16"),
    "a mark before": b"\xef\xbb\xbf{}",
    "half a character": b'{"schema": 1, "kind": "\xe2\x82',
    "a lone surrogate": b'{"schema": 1, "kind": "\\ud800"}',
    "null": b"null",
    "a list": b"[[]]",
    "an object": b"{}",
    "a huge header": (2**62).to_bytes(8, "little") + b"{}",
    "a header of all": (3000).to_bytes(8, "little") + b" " * 3000,
    "tensors past the end": (106).to_bytes(8, "little")
    + b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'.ljust(106),
    "negative offsets": (106).to_bytes(8, "little")
    + b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[-4,0]}}'.ljust(106),
}


def foreign(content: bytes) -> Damage:
    return lambda path: _put(path, content)


def cut(share: float) -> Damage:
    """All behind a place is gone."""

    def damage(path: Path) -> None:
        content = path.read_bytes()
        _put(path, content[: int(len(content) * share)])

    return damage


def flipped(seed: int) -> Damage:
    """One bit is another."""

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        draw = random.Random(seed)
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        _put(path, bytes(content))

    return damage


def zeroed(path: Path) -> None:
    """A page that never reached the disk."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 3
    content[middle : middle + 64] = bytes(len(content[middle : middle + 64]))
    _put(path, bytes(content))


def behind(path: Path) -> None:
    """Something is added to the end."""
    _put(path, path.read_bytes() + b"\x00{")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def a_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def an_endless_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def enormous(path: Path) -> None:
    """40 GB that take no place on the disk."""
    os.truncate(path, 40 * 2**30)


NO_FILES = (a_folder, a_pipe, a_link_to_nothing, a_link_to_itself, an_endless_device, enormous)


def damages(flips: int) -> Iterator[tuple[str, Damage]]:
    """Each with its name."""
    for share in (0.001, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.9999):
        yield f"cut at {share}", cut(share)
    for seed in range(flips):
        yield f"flip {seed}", flipped(seed)
    for name, content in FOREIGN.items():
        yield name, foreign(content)
    for damage in (zeroed, behind, *NO_FILES):
        yield damage.__name__, damage


ODD: list[Any] = [
    *(None, True, -1, 0, 1, 2**31, 2**63 - 1, -(2**63), 1.5, -0.0, 1e308, 5e-324),
    *("", "x", "../../x", "/etc/passwd", "rope", "\x1b[31m", "\ud800", "x" * 20_000),
    *([], [[]], [None], {}, {"": {}}, {"schema": 1}),
]
"""What may stand where something else should."""


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (holder, key) inside nested lists and objects."""
    inside = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else inside:
        yield value, key
        yield from places(item)


def mutated(content: Any, draw: random.Random) -> Any:
    """A document in which a key or two is gone, new, doubled in size or of another type."""
    content = json.loads(json.dumps(content))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        found = list(places(content))
        if not found:
            return content
        holder, key = draw.choice(found)
        how = draw.randrange(6)
        value = holder[key]
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, dict):
            holder[draw.choice(("odd", "schema", "kind", "seed", "\u202e"))] = value
        elif how == 2 and isinstance(value, int | float):
            holder[key] = value * draw.choice((-1, 2, 10**6, 10**18))
        elif how == 3 and isinstance(value, list):
            holder[key] = value * 2
        else:
            holder[key] = draw.choice(ODD)
    return content


def _put(path: Path, content: bytes) -> None:
    path.write_bytes(content)
