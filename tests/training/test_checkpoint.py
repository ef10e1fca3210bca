"""Checkpoints are whole, ours and of this run, or there is one line that says what is wrong."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from arith.errors import Failure
from arith.suite.folders import RunFolder
from arith.suite.runs import continue_run, extend_run
from arith.suite.scores import score_run
from arith.training import checkpoint
from tests.training.small import (
    assert_same_bits,
    contents,
    final_weights,
    never,
    run,
    small,
    train,
    trainer,
    weights,
)

pytestmark = pytest.mark.usefixtures("often")
TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7.0)}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "weights" / "x.safetensors"
    facts = {"step": 3, "losses": [0.1], "encoding": "fire:init_l=512"}
    checkpoint.save(path, {"a": TENSORS["a"].T, "b": TENSORS["b"].requires_grad_()}, facts)
    tensors, found = checkpoint.load(path, "cpu")
    assert_same_bits(tensors, {"a": TENSORS["a"].T, "b": TENSORS["b"]})
    assert found == {"schema": 2, **facts}
    checkpoint.save(path, tensors, {**found, "schema": 1})  # what was read of an old one
    assert checkpoint.load(path, "cpu")[1] == found
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    other = tmp_path / "y.safetensors"
    checkpoint.save(other, dict(reversed(tensors.items())), facts)
    assert other.read_bytes() == path.read_bytes()


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def overwritten(path: Path) -> None:
    path.write_bytes(os.urandom(4096))


def without_our_header(path: Path) -> None:
    save_file(TENSORS, path)


def with_a_header_that_is_no_json(path: Path) -> None:
    save_file(TENSORS, path, metadata={"tape-arith": "{"})


def without_its_digest(path: Path) -> None:
    content = path.read_bytes()
    assert content.count(b'\\"sha256\\"') == 1
    path.write_bytes(content.replace(b'\\"sha256\\"', b'\\"Sha256\\"'))


def with_another_fact(path: Path) -> None:
    """The same length: nothing but the digest tells."""
    content = path.read_bytes()
    assert content.count(b'\\"step\\": 13') == 1
    path.write_bytes(content.replace(b'\\"step\\": 13', b'\\"step\\": 12'))


def with_a_flipped_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1000] ^= 16
    path.write_bytes(bytes(content))


def with_gigabytes_of_nothing(path: Path) -> None:
    """As long as its header says, and a hole: it takes no place, and minutes to read."""
    size = 40 * 2**30
    told = {"model/hole": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    header = json.dumps({**told, "__metadata__": {"tape-arith": '{"schema": 2}'}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + size)


def gone(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (truncated, "is corrupt"),
    (emptied, "is corrupt"),
    (overwritten, "is corrupt"),
    (without_our_header, "is not a checkpoint of tape-arith"),
    (with_a_header_that_is_no_json, "is corrupt"),
    (with_another_fact, "is not what its SHA-256 says"),
    (with_a_flipped_bit, "is not what its SHA-256 says"),
    (without_its_digest, "its SHA-256 is missing"),
    (with_gigabytes_of_nothing, "bytes, where"),
    (gone, "is not a file"),
]


def test_damaged_weights_are_named_when_scored_and_come_back(tmp_path: Path) -> None:
    folder = run(tmp_path, small(steps=5))
    # Copies: what is loaded is a map of the file, which is about to change in its place.
    before = {name: tensor.clone() for name, tensor in final_weights(folder).items()}
    with_a_flipped_bit(folder.final)
    mend = rf"{folder.final} is corrupt: .*: remove it, then `tape-arith train {folder.path}`"
    with pytest.raises(Failure, match=mend):
        score_run(folder, should_stop=never)
    folder.final.unlink()
    continue_run(folder, should_stop=never)
    assert_same_bits(final_weights(folder), before)


def test_a_run_is_not_extended_from_a_damaged_state(tmp_path: Path) -> None:
    folder = run(tmp_path, small(steps=5))
    with_a_flipped_bit(folder.before_cooldown)
    before = contents(tmp_path)
    with pytest.raises(Failure, match=r"before-cooldown.* is corrupt: .*; without it .* 10 steps"):
        extend_run(folder, 10)
    assert contents(tmp_path) == before


def test_a_damaged_state_is_named(stopped: RunFolder) -> None:
    stopped.previous.unlink()  # for which it would be passed over
    content = stopped.latest.read_bytes()
    for damage, says in DAMAGE:
        stopped.latest.write_bytes(content)
        damage(stopped.latest)
        with pytest.raises(Failure) as caught:
            continue_run(stopped, should_stop=never)
        message = str(caught.value)
        assert str(stopped.latest) in message and says in message and "\n" not in message


@pytest.mark.parametrize(
    "other, changes, says",
    [
        ({"seed": 1}, {}, "seed is 1, not 0"),
        ({"name": "nope"}, {}, "encoding is nope, not rope"),
        ({}, {"hidden_size": 32}, "config_sha256 is"),
    ],
    ids=str,
)
def test_a_state_of_another_run_is_refused(
    stopped: RunFolder,
    tmp_path: Path,
    other: dict[str, Any],
    changes: dict[str, Any],
    says: str,
) -> None:
    theirs = run(tmp_path / "other", small(**changes), stop=3, **other)
    theirs.latest.replace(stopped.latest)
    with pytest.raises(Failure, match="belongs to another run") as caught:
        continue_run(stopped, should_stop=never)
    assert str(stopped.latest) in str(caught.value) and says in str(caught.value)


def test_a_state_that_does_not_fit_is_refused(stopped: RunFolder) -> None:
    tensors, facts = checkpoint.load(stopped.latest, "cpu")
    tensors = {key: tensor.clone() for key, tensor in tensors.items()}
    name = "exp_avg/blocks.0.qkv.weight"
    less = {key: tensor for key, tensor in tensors.items() if key != name}
    for other in (less, less | {name: tensors[name][:3]}, less | {name: tensors[name].double()}):
        checkpoint.save(stopped.latest, other, facts)
        with pytest.raises(Failure, match=rf"{stopped.latest} is not a state of this run"):
            continue_run(stopped, should_stop=never)


def test_weights_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = run(tmp_path, small(steps=5))
    tensors, facts = checkpoint.load(folder.final, "cpu")
    del tensors["model/head.weight"]
    tensors["model/more"] = torch.zeros(2)
    checkpoint.save(folder.final, tensors, facts)
    with pytest.raises(Failure, match="does not fit the run's decoder") as caught:
        score_run(folder, should_stop=never)
    assert "\n" not in str(caught.value)


# ---- a full disk ---------------------------------------------------------------------------


def refused(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_keeps_the_state_before(
    stopped: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(stopped.path / "weights")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", refused)
        with pytest.raises(Failure, match=rf"cannot write {stopped.latest}: No space left"):
            continue_run(stopped, should_stop=never)
    assert contents(stopped.path / "weights") == before
    assert checkpoint.load(stopped.latest, "cpu")[1]["step"] == 13
    continue_run(stopped, should_stop=never)
    assert_same_bits(final_weights(stopped), weights(train(trainer(small()))))
