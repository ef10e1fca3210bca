"""Users' encodings: an error of their code is one line that names it, and stops no other."""

import json
import sys
from pathlib import Path

import pytest

from tape_arith.arith.decoders.build import blueprint
from tape_arith.arith.decoders.cost import cost, training_flops_a_token
from tape_arith.arith.errors import Failure
from tape_arith.arith.registry.names import parse
from tape_arith.arith.runs.options import TrainOptions
from tape_arith.arith.runs.preset import load_preset
from tape_arith.arith.runs.run import Run
from tape_arith.arith.training import session as train
from tape_arith.arith.training.distributed import ProcessGroup
from tests.helpers.sweeps import jobs_of, sweep_file
from tests.helpers.tiny_runs import call, done, refused, settings

HEAD = """
from functools import cache
from pathlib import Path

import torch
from torch import nn

from tape_arith.models.encoding import PositionalEncoding


@cache
def ramp(length):
    return torch.linspace(0, 1, length)


class Mine(PositionalEncoding):
    def __init__(self, setting):
        super().__init__(setting)
        self.table = nn.Parameter(torch.zeros(setting.max_length, setting.hidden_size))
"""
EMBED = """
    def embed(self, x, index, seqs):
        return x + self.table[index] * getattr(self, "scale", 1.0)
"""
READS = """
        self.scale = float(ramp(setting.max_length)[-1])
        if torch.linspace(0, 1, 4).max() > 0.5:
            self.slopes = torch.linspace(0, 1, 4).tolist()
"""
"""It keeps the contract; a decoder without memory for its weights cannot be made of it, and an
attempt would leave a tensor without memory in its cache."""
RUN = "runs/mini/mine.py@Mine/seed-0"


def write(body: str, embed: str = EMBED) -> None:
    Path("mine.py").write_text(HEAD + body + embed)


def test_an_encoding_that_keeps_the_contract_is_trained_and_scored(here: Path) -> None:
    write(READS)
    assert json.loads(done("check", "mine.py:Mine", "--json").out)["holds"]
    done("train", "--pe", "mine.py:Mine", *settings(steps=2))
    assert Run(Path(RUN)).grid_file().exists()
    done("score", RUN, "--split", "carry")


def test_it_is_looked_at_without_memory_for_the_decoder(here: Path) -> None:
    write(READS)
    config = load_preset("paper-40")
    mine = blueprint(config, parse("mine.py:Mine"))
    own = mine.pe.get_parameter("table").numel()
    assert not any(p.is_meta for p in mine.pe.parameters())
    assert all(p.is_meta for p in mine.blocks.parameters())
    plain = blueprint(config, parse("nope"))
    assert mine.num_parameters() == plain.num_parameters() + own > 117e6
    assert all(p.is_meta for p in blueprint(config, parse("tape")).parameters())
    assert cost(parse("mine.py:Mine")).parameters == own
    rate = training_flops_a_token(parse("mine.py:Mine"), config)
    assert rate == training_flops_a_token(parse("nope"), config) > 0


def test_an_encoding_that_cannot_be_built_at_a_size_is_blamed(here: Path) -> None:
    """At a width that no check has met."""
    write("        if setting.hidden_size == 24:\n            raise KeyError('far')\n")
    line = refused("train", "--pe", "mine.py:Mine", *settings(hidden_size=24, head_dim=12), code=1)
    assert line.startswith("mine.py:Mine") and "'far' (line 21" in line
    assert not Path("runs").exists()


FAILS = """
    def embed(self, x, index, seqs):
        if len(seqs.key) > 4:
            {}
        return x + self.table[index]
"""


def test_a_failing_encoding_stops_no_other(here: Path) -> None:
    """Neither the estimate of a sweep nor its other jobs."""
    write("", FAILS.format("raise SystemExit(0)"))
    file = sweep_file("mine.py:Mine,rope", batch_size=32)
    dry = call("sweep", file, "--dry-run")
    assert dry.code == 0 and "rope" in dry.out
    (note,) = (line for line in dry.err.splitlines() if "note:" in line)
    assert "mine.py:Mine" in note and "of mine.py)" in note
    result = call("sweep", file, "--json")
    states = jobs_of(result)
    assert result.code == 1
    assert states["score/mine/mini/rope/seed-0/grid"] == "scored"
    assert states["train/mine/mini/mine.py@Mine/seed-0"] == "failed"
    assert states["score/mine/mini/mine.py@Mine/seed-0/grid"] == "waiting"
    jobs = json.loads(done("status", "mine", "--json").out)["jobs"]
    assert jobs == json.loads(result.out)["jobs"] and "mine.py:Mine" in jobs[0]["reason"]


def test_sys_exit_is_no_success(here: Path) -> None:
    """While it is imported, built, checked or scored."""
    Path("mine.py").write_text("import sys\n\n\nclass Mine:\n    pass\n\n\nsys.exit(0)\n")
    for command in (
        ("check", "mine.py:Mine"),
        ("run", "--pe", "mine.py:Mine", *settings()),
        ("sweep", sweep_file("rope,mine.py:Mine")),
    ):
        line = refused(*command)
        assert "mine.py:Mine" in line and "SystemExit" in line and "(line 8" in line
    exits = "        raise SystemExit(0)\n"
    for body, embed in ((exits, EMBED), ("", EMBED.replace("        return", exits + "#"))):
        write(body, embed)
        result = call("check", "mine.py:Mine")
        assert result.code == 1 and "SystemExit: 0" in result.out
        assert "promise" in refused("train", "--pe", "mine.py:Mine", *settings())
    assert not Path("runs").exists()
    write("", FAILS.replace("len(seqs.key) > 4", "Path('leave').exists()").format("exit(0)"))
    done("train", "--pe", "mine.py:Mine", *settings(steps=2), "--no-score")
    Path("leave").touch()
    line = refused("score", RUN, code=1, after=True)
    assert line.startswith("mine.py:Mine") and "SystemExit: 0" in line
    assert not Run(Path(RUN)).grid_file().exists()


PRODUCTS = """
    def products(self, extent):
        yield from ()
        {}
"""


def test_products_that_fail(here: Path) -> None:
    """At any size it is not trained; at the size of a run alone its cost is not recorded."""
    statement = "raise SystemExit(0)"
    write("", EMBED + PRODUCTS.format(statement))
    assert "(builds)" in refused("train", "--pe", "mine.py:Mine", *settings())
    write("", EMBED + PRODUCTS.format(f"if self.setting.num_heads > 2:\n            {statement}"))
    with pytest.raises(Failure, match=r"mine\.py:Mine.* \(line \d+"):
        cost(parse("mine.py:Mine"))
    trained = done("train", "--pe", "mine.py:Mine", *settings(num_heads=4, head_dim=4))
    assert "note: mine.py:Mine" in trained.err
    board = done("leaderboard", "--preset", "mini", "--costs", "--csv")
    assert "mine.py:Mine" in board.out and "mine.py:Mine" in board.err


def test_an_encoding_that_fails_in_another_process_is_blamed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sys.exit() would end that one without a word, and the first would wait for it."""
    write("")
    done("train", "--pe", "mine.py:Mine", *settings(steps=2), "--no-score")
    monkeypatch.setattr(ProcessGroup, "broadcast_text", lambda self: RUN)
    monkeypatch.setattr(train, "build_trainer", lambda *_, **__: sys.exit(0))
    with pytest.raises(Failure, match=r"^mine\.py:Mine .*SystemExit"):
        train.train_as_worker(ProcessGroup(1, 2), TrainOptions(), should_stop=lambda: False)
