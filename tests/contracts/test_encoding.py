"""Every encoding, ablation and way to join them keeps the contract; `check` explains each slip."""

import json
from pathlib import Path

import pytest

from tape_arith.arith.contracts import encoding as contract
from tape_arith.arith.contracts.encoding import examine
from tape_arith.arith.contracts.promises import CheckOutcome, ContractReport, as_text
from tape_arith.arith.registry.locate import known_names, on_disk
from tape_arith.arith.registry.names import parse
from tests.helpers.small_decoders import NUMBERINGS
from tests.helpers.tiny_runs import call, refused
from tests.models.test_oracles import ABLATIONS

EXTRAPOLATIONS = known_names("extrapolation")
TAPE_OPTIONS = ("start=fourier", "start=learned", "clamp=1.5")
NAMES = [
    *known_names("encoding"),
    *(f"{'rand-rope' if name in NUMBERINGS else 'rope'}+{name}" for name in EXTRAPOLATIONS),
    *ABLATIONS,
    *(f"{tape}:{option}" for tape in ("tape", "tape-heads") for option in TAPE_OPTIONS),
    *("tape+yarn", "rand-learned+even", "abacus+rand-rope+even", "abacus+fire", "abacus+rope+yarn"),
    *("abacus+tape", "coupling+rope", "abacus+bipe", "abacus+coupling", "abacus+aug-rope"),
    *("aug-fire", "aug-tape", "aug-rope+yarn"),
]


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str) -> None:
    report = examine(parse(name))
    assert report.holds and report.warnings == (), as_text(report)
    skipped = {outcome.check for outcome in report.outcomes if not outcome.applies}
    packs = contract.decoder_for(name).pe.needs.packed
    assert skipped == (set() if packs else {"packed"})


HEAD = """
import torch
from torch import nn

from tape_arith.models.encoding import PositionalEncoding, PositionalLayer
from tape_arith.models.families.rotary import Rotary

"""
EMBED = """class Mine(PositionalEncoding):
    def embed(self, x, index, seqs):
        return x + {}
"""
ATTEND = """class MineLayer(PositionalLayer):
    def attend(self, x, q, k, v, state, seqs):
        return {}, state


class Mine(PositionalEncoding):
    def layer(self, i):
        return MineLayer()
"""
INIT = """class Mine(PositionalEncoding):
    def __init__(self, setting{}):
        super().__init__(setting)
        self.table = nn.Parameter(torch.zeros(setting.trained_length, setting.hidden_size))
"""
SEES_ALL = "torch.einsum('bhqt,bthk->bqhk', torch.einsum('bqhk,bthk->bhqt', q, k).softmax(-1), v)"
# A slip in each, the check that catches it, and its message.
SLIPS = {
    "builds": (INIT.format(", *, width: int"), "missing 1 required keyword-only argument: 'width'"),
    "shape": (
        INIT.format("")
        + "\n    def embed(self, x, index, seqs):\n        return x + self.table[index]",
        "IndexError: index 28 is out of bounds",
    ),
    "causal": (
        ATTEND.format(SEES_ALL),
        "at place 19, changed the logits of 19 earlier places, from place 0 on",
    ),
    "order": (ATTEND.format("v"), "does not reach the logits"),
    "no dead parameter": (INIT.format(""), "pe.table gets no gradient"),
    "rows": (EMBED.format("x.mean(0) * 0.1"), "row 0 alone and padded: relative error"),
    "deterministic": (EMBED.format("torch.rand(1)"), "two identical calls differ"),
    "prefix": (
        EMBED.format("(index / index.max().clamp_min(1))[..., None].to(x)"),
        "prefix of 2 tokens: relative error",
    ),
    "packed": (
        EMBED.format("torch.arange(x.shape[1])[None, :, None].to(x)"),
        "packed sequence 1: relative error",
    ),
    "bfloat16": (
        EMBED.format("((index.to(x) + 1000)[..., None] @ torch.ones(1, 16).to(x)).sin()"),
        "autocast: relative error",
    ),
}


def outcome_of(report: ContractReport, check: str) -> CheckOutcome:
    (outcome,) = (outcome for outcome in report.outcomes if outcome.check == check)
    return outcome


@pytest.mark.parametrize("check", SLIPS)
def test_each_slip_is_explained(check: str, here: Path) -> None:
    source, message = SLIPS[check]
    Path("mine.py").write_text(HEAD + source)
    report = examine(parse("mine.py:Mine"))
    outcome = outcome_of(report, check)
    assert not outcome.holds and not report.holds and message in outcome.happened
    # The other checks run all the same, unless nothing was built.
    assert len(report.outcomes) == (1 if check == "builds" else 1 + len(contract.CHECKS))
    text = as_text(report)
    assert f"  BROKEN {check}: {outcome.expected}\n         but: {outcome.happened}\n" in text
    assert f"         usually: {outcome.cause}\n" in text


def test_every_check_has_a_promise_and_a_slip() -> None:
    report = examine(parse("rope"))
    assert report.sources == {} and as_text(report).endswith("10 of 10 checks hold")
    assert all(outcome.expected.endswith(".") for outcome in report.outcomes)
    assert set(SLIPS) == {outcome.check for outcome in report.outcomes}
    fire = examine(parse("fire"))
    assert "packed=False" in outcome_of(fire, "packed").happened
    assert as_text(fire).endswith("9 of 9 checks hold")  # what does not apply does not count


def test_warnings(here: Path) -> None:
    Path("mine.py").write_text(
        HEAD + "WIDTH = 3\n\n\nclass Mine(PositionalEncoding):\n    kind = 'strange'\n\n"
        "    def __init__(self, setting, *, width: int = WIDTH, size: tuple[int, ...] = (1, 2)):\n"
        "        super().__init__(setting)\n"
    )
    (width, size, docstring, kind, paper, formula) = examine(parse("mine.py:Mine")).warnings
    assert "option 'width' has the default `WIDTH`" in width and "(1, 2)" in size
    assert "no docstring" in docstring and "'strange': it is one of absolute" in kind
    assert "`paper`" in paper and "plain loops" in formula


@pytest.mark.parametrize(
    ("bases", "kind"),
    [
        ("Rotary", "rotary"),
        ("FromScores", "content"),
        ("Bias", "relative bias"),
        ("encodings.abacus.Abacus", "task-structured"),
        ("tape_arith.models.encodings.tape.TAPE", "rotary, contextual"),
        ("Base", "rotary"),
        ("PositionalEncoding, Rotary", "rotary"),
        ("PositionalEncoding", ""),
        ("torch.nn.Module", ""),
        ("encodings.abacus.Gone", ""),
    ],
)
def test_a_kind_may_be_inherited(bases: str, kind: str, here: Path) -> None:
    """From a family or an encoding of the suite, however that is imported."""
    Path("mine.py").write_text(
        f"{HEAD}import tape_arith.models.encodings.tape\n"
        "from tape_arith.models import encodings\n"
        "from tape_arith.models.families.scores import CommonAdditiveBias as Bias, FromScores\n\n\n"
        f"class Base(Rotary):\n    pass\n\n\nclass Mine({bases}):\n    pass\n"
    )
    mine = on_disk("mine.py", "Mine")
    assert mine.declaration().kind == kind
    said = [line for line in contract._warnings(mine) if "kind" in line]
    assert bool(said) == (not kind) and all("no `kind`" in line for line in said)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "class Mine:\n    pass\n", "must be a subclass of PositionalEncoding"),
        ("import no_such_module\n\n\nclass Mine: ...", "'no_such_module' (line 1 of mine.py)"),
    ],
)
def test_a_file_that_cannot_be_checked(text: str, message: str, here: Path) -> None:
    Path("mine.py").write_text(text)
    assert message in refused("check", "mine.py:Mine")


def test_json(here: Path) -> None:
    Path("mine.py").write_text(HEAD + SLIPS["causal"][0])
    result = call("check", "mine.py:Mine", "--json")
    content = json.loads(result.out)
    assert result.code == 1 and content["schema"] == 1 and content["holds"] is False
    assert list(content) == ["schema", "holds", "name", "sources", "outcomes", "warnings"]
    assert list(content["sources"]) == ["mine.py:Mine"]
    assert {o["check"]: o["holds"] for o in content["outcomes"]}["causal"] is False
    result = call("check", f"abacus:k={10**13}", "--json")  # 640 TB
    (outcome,) = json.loads(result.out)["outcomes"]
    assert result.code == 1 and "larger than the memory" in outcome["cause"]
