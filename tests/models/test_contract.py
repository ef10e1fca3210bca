"""Every encoding of the folder, and every extrapolation on two that it can change, keeps the
contract; and what is told of one that does not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from models import contract
from models.contract import CheckOutcome, ContractReport, as_text, examine
from models.encodings.rope import RoPE
from models.encodings.tape import TapeLayer, TapeState
from models.errors import UsageError
from models.names.locate import known_names
from models.names.parse import parse
from tests.models.small import NUMBERINGS, assert_holds
from tests.suite.tiny import call, done, refused

NAMES = [
    *known_names("encoding"),
    *(
        f"{changed}+{name}"
        for name in known_names("extrapolation")
        for changed in (("rand-rope", "rand-learned") if name in NUMBERINGS else ("rope", "tape"))
    ),
    *(
        f"{tape}:start={start}"
        for tape in ("tape", "tape-heads")
        for start in ("fourier", "learned")
    ),
]


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str, check: Callable[[str], None]) -> None:
    assert_holds(check, name)


def test_one_layer_of_nope_cannot_see_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception that proves the check of order: a single layer gathers a bag of tokens."""
    build = contract.decoder_for
    monkeypatch.setattr(contract, "decoder_for", lambda name: build(name, num_layers=1))
    with pytest.raises(AssertionError, match="order"):
        contract.check_order("nope")
    contract.check_order("rope")


def test_a_leak_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions in units of the present length know how much follows."""
    honest = RoPE.indices
    monkeypatch.setattr(
        RoPE, "indices", lambda self, seqs: honest(self, seqs) * seqs.tokens.shape[1]
    )
    with pytest.raises(AssertionError, match="prefix"):
        contract.check_prefix("rope")


def test_a_dead_parameter_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """TAPE whose update is thrown away, as in the released arithmetic code."""

    def thrown_away(self: TapeLayer, heads: object, mixed: object, state: TapeState) -> TapeState:
        return state

    monkeypatch.setattr(TapeLayer, "contextualize", thrown_away)
    with pytest.raises(AssertionError, match="gets no gradient"):
        contract.check_no_dead_parameter("tape")


def test_randomness_from_torch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RoPE.indices
    monkeypatch.setattr(
        RoPE, "indices", lambda self, seqs: honest(self, seqs) * int(torch.randint(1, 10**6, ()))
    )
    with pytest.raises(AssertionError):
        contract.check_deterministic("rope")


def test_padding_that_counts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RoPE.indices
    monkeypatch.setattr(
        RoPE, "indices", lambda self, seqs: honest(self, seqs) * seqs.tokens.shape[1]
    )
    with pytest.raises(AssertionError, match="padded"):
        contract.check_rows("rope")


HEAD = """
import torch
from torch import nn

from models.encoding import PositionalEncoding, PositionalLayer
from models.families.rotary import Rotary

"""
# A slip in each, the check that catches it, and what it tells.
SLIPS = {
    "builds": (
        """class Mine(PositionalEncoding):
    def __init__(self, setting, *, width: int):
        super().__init__(setting)
""",
        "missing 1 required keyword-only argument: 'width'",
    ),
    "shape": (
        """class Mine(PositionalEncoding):
    def __init__(self, setting):
        super().__init__(setting)
        self.table = nn.Parameter(torch.zeros(setting.trained_length, setting.hidden_size))

    def embed(self, x, index, seqs):
        return x + self.table[index]
""",
        "IndexError: index 28 is out of bounds",
    ),
    "causal": (
        """class MineLayer(PositionalLayer):
    def attend(self, x, q, k, v, state, seqs):
        scores = torch.einsum("bqhk,bthk->bhqt", q, k)
        return torch.einsum("bhqt,bthk->bqhk", scores.softmax(-1), v), state


class Mine(PositionalEncoding):
    def layer(self, i):
        return MineLayer()
""",
        "another last token, at place 19, changed the logits of 19 places before it, the first of "
        "them place 0",
    ),
    "order": (
        """class MineLayer(PositionalLayer):
    def attend(self, x, q, k, v, state, seqs):
        return v, state


class Mine(PositionalEncoding):
    def layer(self, i):
        return MineLayer()
""",
        "does not reach the logits",
    ),
    "no dead parameter": (
        """class Mine(PositionalEncoding):
    def __init__(self, setting):
        super().__init__(setting)
        self.unused = nn.Parameter(torch.zeros(3))
""",
        "pe.unused gets no gradient",
    ),
    "rows": (
        """class Mine(PositionalEncoding):
    def embed(self, x, index, seqs):
        return x + x.mean(0) * 0.1
""",
        "row 0 alone and padded: relative error",
    ),
    "deterministic": (
        """class Mine(PositionalEncoding):
    def embed(self, x, index, seqs):
        return x + torch.rand(1)
""",
        "two identical calls differ",
    ),
    "prefix": (
        """class Mine(PositionalEncoding):
    def embed(self, x, index, seqs):
        return x + (index / index.max().clamp_min(1))[..., None].to(x)
""",
        "prefix of 2 tokens: relative error",
    ),
    "packed": (
        """class Mine(PositionalEncoding):
    def embed(self, x, index, seqs):
        return x + torch.arange(x.shape[1])[None, :, None].to(x)
""",
        "packed sequence 1: relative error",
    ),
    "bfloat16": (
        """class Mine(PositionalEncoding):
    def embed(self, x, index, seqs):
        angles = (index.to(x) + 1000)[..., None] @ torch.ones(1, 16).to(x)
        return x + angles.sin()
""",
        "autocast: relative error",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def outcome(report: ContractReport, check: str) -> CheckOutcome:
    (found,) = (outcome for outcome in report.outcomes if outcome.check == check)
    return found


@pytest.mark.parametrize("check", SLIPS)
def test_each_slip_is_explained(check: str, folder: Path) -> None:
    source, told = SLIPS[check]
    Path("mine.py").write_text(HEAD + source)
    report = examine(parse("mine.py:Mine"))
    found = outcome(report, check)
    assert not found.holds and not report.holds
    assert told in found.happened
    assert found.expected.endswith(".") and len(found.cause) > 40
    # All are told of, whatever breaks, but where there is nothing to check.
    assert len(report.outcomes) == (1 if check == "builds" else 1 + len(contract.CHECKS))
    text = as_text(report)
    assert f"  BROKEN {check}: {found.expected}\n         but: {found.happened}\n" in text
    assert f"         usually: {found.cause}\n" in text


def test_every_check_says_what_it_expects_and_how_it_breaks() -> None:
    report = examine(parse("rope"))
    assert report.holds and report.warnings == () and report.sources == {}
    for found in report.outcomes:
        assert found.expected.endswith(".") and "Usually" not in found.expected
        assert found.happened == found.cause == "" or not found.holds
    assert set(SLIPS) == {found.check for found in report.outcomes}
    assert as_text(report).endswith("10 of 10 checks hold")


def test_warnings(folder: Path) -> None:
    Path("mine.py").write_text(
        HEAD + "WIDTH = 3\n\n\nclass Mine(PositionalEncoding):\n    kind = 'strange'\n\n"
        "    def __init__(self, setting, *, width: int = WIDTH, size: tuple[int, ...] = (1, 2)):\n"
        "        super().__init__(setting)\n"
    )
    (width, size, docstring, kind, paper, formula) = examine(parse("mine.py:Mine")).warnings
    assert "option 'width' has the default `WIDTH`" in width and "(1, 2)" in size
    assert "no docstring" in docstring and "'strange' is none of absolute" in kind
    assert "`paper`" in paper and "plain loops" in formula


def test_what_does_not_apply_is_not_said_to_hold() -> None:
    report = examine(parse("fire"))
    found = outcome(report, "packed")
    assert report.holds and not found.applies and "packed=False" in found.happened
    text = as_text(report)
    assert "  none   packed" in text and text.endswith("9 of 9 checks hold")


def test_one_crash_is_told_once(folder: Path) -> None:
    Path("mine.py").write_text(
        HEAD + "class Mine(PositionalEncoding):\n"
        "    def embed(self, x, index, seqs):\n        raise KeyError('gone')\n"
    )
    text = as_text(examine(parse("mine.py:Mine")))
    assert text.count("KeyError: 'gone'") == 1 and "but: the same as in shape" in text


def test_what_is_no_encoding_is_one_line(folder: Path) -> None:
    Path("mine.py").write_text(HEAD + "class Mine:\n    pass\n")
    with pytest.raises(UsageError, match="PositionalEncoding"):
        examine(parse("mine.py:Mine"))


def test_the_command(folder: Path) -> None:
    source, _ = SLIPS["causal"]
    Path("mine.py").write_text(HEAD + source)
    result = call("check", "mine.py:Mine", "--json")
    content = json.loads(result.out)
    assert result.code == 1 and content["schema"] == 1 and content["holds"] is False
    assert list(content) == ["schema", "holds", "name", "sources", "outcomes", "warnings"]
    assert list(content["sources"]) == ["mine.py:Mine"]
    assert {o["check"]: o["holds"] for o in content["outcomes"]}["causal"] is False
    assert call("check", "mine.py:Mine").code == 1
    assert done("check", "abacus+rope").out.endswith("10 of 10 checks hold\n")
    assert "no such file" in refused("check", "gone.py:Mine")
    Path("broken.py").write_text("import no_such_module\n\n\nclass Mine:\n    pass\n")
    assert "ModuleNotFoundError: No module named 'no_such_module' (line 1 of broken.py)" in (
        refused("check", "broken.py:Mine")
    )
    Path("broken.py").write_text("class Mine(:\n")
    assert "broken.py is not Python" in refused("check", "broken.py:Mine")
    with pytest.raises(UsageError, match="unknown encoding"):
        examine(parse("rpoe"))


def test_an_option_larger_than_the_memory(folder: Path) -> None:
    name = f"abacus:k={10**13}"  # 640 TB
    result = call("check", name, "--json")
    (outcome,) = json.loads(result.out)["outcomes"]
    assert result.code == 1 and "larger than the memory" in outcome["cause"]
    (line,) = result.err.splitlines()
    assert line.startswith(f"tape-arith: {name} breaks a promise (builds): RuntimeError: ")
