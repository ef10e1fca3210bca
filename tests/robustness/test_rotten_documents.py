"""Documents in which something is wrong on purpose, with a checksum that fits or in the old form
that had none: what is believed is sound, and what is not is said in one line."""

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arith.schemas import WITH_CHECKSUM
from arith.scoring import grid_file
from arith.scoring.regions import REGIONS
from arith.training import checkpoint
from arith.training.config import MOST, Config
from tests.robustness.damage import mutated
from tests.robustness.kinds import KINDS, Kind
from tests.robustness.test_rotten_files import read, restored
from tests.sealing import resealed, without
from tests.suite.tiny import call

DOCUMENTS = [n for n, kind in KINDS.items() if kind.document not in (None, "checkpoint")]


def altered(kind: Kind, draw: Random) -> bytes:
    """The file with one of its documents mutated."""
    text = kind.file.read_bytes()
    lines = text.splitlines() if kind.lines else [text]
    place = draw.randrange(len(lines))
    content: Any = mutated(without(json.loads(lines[place])), draw)
    if isinstance(content, dict) and draw.random() < 0.5:
        content["checksum"] = "0" * 16
    elif isinstance(content, dict) and content.get("schema") == WITH_CHECKSUM:
        content["schema"] = 1
        if kind.lines:  # those of before said nothing of themselves
            content = {k: v for k, v in content.items() if k not in ("schema", "document")}
            if kind.document != "job":
                content.pop("kind", None)
    lines[place] = resealed(json.dumps(content).encode())
    return b"\n".join(lines) + b"\n"


def sound(kind: Kind) -> None:
    """What must hold of numbers that are believed."""
    if kind.document == "grid":
        grid = grid_file.load(kind.file)
        assert (grid.exact >= 0).all() and (grid.exact <= grid.total).all()
        assert (grid.total >= grid.blocks_done).all()
        assert (grid.total <= grid.evaluation["problems_per_cell"]).all()
        assert (grid.exact <= grid.right_sum).all() and (grid.right_sum <= grid.total).all()
        assert all(0 <= (grid.mean(region).value or 0) <= 1 for region in REGIONS)
        grid_file.save(grid, Path("again.json"))
        again = grid_file.load(Path("again.json"))
        assert again.content() == grid.content() and np.array_equal(again.exact, grid.exact)
    if kind.document == "metrics":
        lines = kind.read(kind.file)
        steps = [line["step"] for line in lines]
        assert steps == sorted(set(steps)) and min(steps, default=0) >= 0
        assert all(np.isfinite(line["loss"]) for line in lines)


@pytest.mark.parametrize("name", DOCUMENTS)
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(draw=st.randoms(use_true_random=False))
def test_a_mutated_document(world: Path, name: str, draw: Random) -> None:
    kind = KINDS[name]
    with restored(kind.file):
        kind.file.write_bytes(altered(kind, draw))
        if read(kind)[0] == "read":
            sound(kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_on_mutated_documents(made: Path, world: Path, name: str) -> None:
    kind = KINDS[name]
    for seed in range(20):
        kind.file.write_bytes(altered(kind, Random(seed)))
        result = call(*kind.command)
        for folder in ("runs", "half", "set"):
            shutil.rmtree(folder)
            shutil.copytree(made / folder, folder)
        shutil.copy(made / kind.file, kind.file)
        assert result.code in (0, 1, 2, 75), (seed, result)
        assert "Traceback" not in result.err, (seed, result.err)
        if result.code:
            assert result.err.splitlines()[-1].startswith("tape-arith: "), (seed, result.err)


ROPE = 'preset = "mini"\nencodings = ["rope"]\nseeds = [0]\n'
HUGE = [
    ROPE + "shards = 999999999",
    ROPE + "[set]\nnum_layers = 1000000000",
    ROPE + "[set]\nhidden_size = 1000000000000000000",
    ROPE + "[set]\nsteps = " + "9" * 400,
    ROPE + "[set]\nsteps = 1e400",
    ROPE + "[set]\nlearning_rate = " + "9" * 400,
    ROPE + "[set]\nlearning_rate = nan",
    ROPE + "[set]\nwarmup = nan",
    ROPE + "[set]\nbatch_size = 4000000000000",
    ROPE + "[set]\ntested_digits = 4000000000000",
    ROPE + "[set]\nproblems_per_cell = 4000000000000",
    ROPE + "[tune]\nlearning_rate = [[1], [2]]",
    ROPE + "[tune]\nlearning_rate = [{}, {}]",
    ROPE.replace("[0]", f"[{'9' * 400}]"),
    ROPE.replace("[0]", f"[{', '.join(map(str, range(2_000)))}]"),
    ROPE.replace('["rope"]', '["*", "*"]'),
    ROPE.replace("mini", "../../mini"),
    ROPE.replace('"rope"', '"../rope"'),
    ROPE.replace('"rope"', '"\\u0000.py:X"'),
    "a" + ".a" * 9_000 + " = 1",
    "a" + ".a" * 40_000 + " = 1",
    "[" + "a." * 40_000 + "a]",
    'preset = """' + "x" * 200_000 + '"""',
    ROPE + "order = 1979-05-27T07:32:00Z",
]


@pytest.mark.parametrize("number", range(len(HUGE)))
def test_sweeps_past_all_measure(world: Path, number: int) -> None:
    Path("mine.toml").write_text(HUGE[number])
    result = call("sweep", "mine.toml", "--dry-run")
    assert result.code == 2 and result.out == "", result
    (line,) = result.err.splitlines()
    assert line.startswith("tape-arith: mine.toml"), line


@pytest.mark.parametrize("key", ["hidden_size", "mlp_size", "head_dim"])
def test_a_record_that_asks_for_more_than_its_weights_hold(world: Path, key: str) -> None:
    """Record and weights agree on what they are of; nothing of that size is ever made."""
    kind = KINDS["record"]
    content = json.loads(kind.file.read_text())
    content["config"][key] = MOST[key]
    kind.file.write_bytes(resealed(json.dumps(content).encode()))
    assert "belongs to another run" in call(*kind.command).err
    final = KINDS["final weights"].file
    tensors, facts = checkpoint.load(final, "cpu")
    facts["config_sha256"] = Config.from_dict(content["config"]).sha256
    checkpoint.save(final, tensors, facts)
    result = call(*kind.command)
    assert result.code == 1 and "does not fit the run's decoder" in result.err, result
    assert "loading state_dict" not in result.err  # that is said where it was made already


def test_lines_that_are_whole_but_in_another_order(world: Path) -> None:
    kind = KINDS["metrics"]
    lines = kind.file.read_text().splitlines()
    for other in (lines[::-1], [*lines, lines[-1]], [lines[0], *lines]):
        kind.file.write_text("\n".join(other) + "\n")
        state, found = read(kind)
        assert state == "refused" and "comes after step" in found
