"""Every encoding, ablation and way to join them keeps the contract; `check` explains each slip."""

import json
from pathlib import Path

import pytest

from tape_arith.arith.contracts import examples, interface
from tape_arith.arith.contracts.examine import CHECKS, GATES, _warnings, examine, run_checks
from tape_arith.arith.contracts.promises import CheckOutcome, ContractReport, as_text
from tape_arith.arith.registry.locate import known_names, on_disk
from tape_arith.arith.registry.names import parse
from tape_arith.models.encoding import PositionalEncoding
from tests.helpers.small_decoders import NUMBERINGS
from tests.helpers.tiny_runs import call, refused
from tests.models.test_oracles import ABLATIONS

EXTRAPOLATIONS = known_names("extrapolation")
TAPE_OPTIONS = ("start=fourier", "start=learned", "clamp=1.5")
# Of the same family as another encoding, which stands for it in the fast tests.
VARIANTS = [
    *("coupling", "learned-offset", "tape-heads"),
    *("hard-alibi", "kerple-log", "kerple-power", "nape", "sandwich"),
    *("dape", "stick-breaking", "wall"),
    *("hybrid", "p-rope", "pope", "repo", "rope-partial", "xpos"),
    *(f"rand-{name}" for name in ("alibi", "fire", "learned", "sinusoidal")),
    *(f"{'rand-rope' if name in NUMBERINGS else 'rope'}+{name}" for name in EXTRAPOLATIONS),
    *ABLATIONS,
    *(f"{tape}:{option}" for tape in ("tape", "tape-heads") for option in TAPE_OPTIONS),
    *("rand-learned+even", "abacus+fire", "abacus+rope+yarn", "abacus+tape", "coupling+rope"),
    *("abacus+bipe", "abacus+coupling", "abacus+aug-rope", "aug-fire", "aug-tape", "tape+yarn"),
    # Not told the tested length.
    *("rand-rope:l_max=300", "rand-learned:l_max=300", "learned-offset:rows=300", "coupling:s=50"),
]
NAMES = [
    *(name for name in known_names("encoding") if name not in VARIANTS),
    *("aug-rope+yarn", "abacus+rand-rope+even", "abacus+rand-fire:draw=float", "abacus:k=20"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS),
]


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str) -> None:
    report = examine(parse(name))
    assert report.holds and report.warnings == (), as_text(report)
    skipped = {outcome.check for outcome in report.outcomes if not outcome.applies}
    packs = examples.decoder_for(name).pe.needs.packed
    expected = {"packed": packs, "positions": name != "nope"}
    assert skipped == {check for check, applies in expected.items() if not applies}


HEAD = """
import random
from dataclasses import dataclass

import torch
from torch import nn

from tape_arith.models.attention import Needs
from tape_arith.models.encoding import PositionalEncoding, PositionalLayer
from tape_arith.models.families.rotary import Rotary
from tape_arith.models.families.scores import CommonAdditiveBias

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
BIAS = """class Mine(CommonAdditiveBias):
    def bias(self, distances):
        return {}
"""
GATED = """class MineLayer(PositionalLayer):
    def __init__(self, setting):
        super().__init__()
        self.gate = nn.Linear(setting.hidden_size, setting.num_heads)

    def attend(self, x, q, k, v, state, seqs):
        return super().attend(x, q * self.gate(x)[..., None], k, v, state, seqs)


class Mine(PositionalEncoding):
    def layer(self, i):
        return MineLayer(self.setting)

    def embed(self, x, index, seqs):
        return x + index[..., None].to(x).sin()
"""
KEEPS_LONGEST = """
    def start(self, x, index, seqs):
        self.longest = seqs.final_length.max()
        return super().start(x, index, seqs)
"""
COUNTED = """
    def multiply_adds(self, extent):
        return {}
"""
HELD = """
        {}

    def embed(self, x, index, seqs):
        return x + (index[..., None] * {}).to(x).sin()
"""
SEES_ALL = "torch.einsum('bhqt,bthk->bqhk', torch.einsum('bqhk,bthk->bhqt', q, k).softmax(-1), v)"
TRAINING = "if self.training else x"
KEEPS_MODULE = "self.parts = [nn.Linear(1, 16).double()]"
LONGER = "self.setting.trained_length"
GROUPS = "\n    def parameter_groups(self):\n        return {}\n"
PLAIN_INIT = INIT.split("        self")[0].format("")
# Slips by the check that catches each, with its message.
SLIPS = {
    "builds": {
        "builds": (
            INIT.format(", *, width: int"),
            "missing 1 required keyword-only argument: 'width'",
        ),
        "a layer that is none": (
            "class Mine(PositionalEncoding):\n    def layer(self, i):\n        return i",
            "Mine.layer returned 0; it",
        ),
        "torch's default type": (
            PLAIN_INIT + "        torch.set_default_dtype(torch.float64)\n",
            "it changes settings of torch",
        ),
    },
    "shape": {
        "shape": (
            INIT.format("")
            + "\n    def embed(self, x, index, seqs):\n        return x + self.table[index]",
            "IndexError: index 28 is out of bounds",
        ),
        "nothing finite in training": (EMBED.format(f"1 / index.sum() * torch.inf {TRAINING}"), ""),
    },
    "names": {
        "names": (
            EMBED.replace("embed", "embedd").format("1"),
            "Mine.embedd is never used: did you",
        ),
        "a hook of layers": (
            ATTEND.format("v").replace("def attend(self, x, q", "def atend(self, x, q"),
            "MineLayer.atend is never used: did you mean `attend`?",
        ),
        "a hook in the wrong class": (
            EMBED.format("1")
            + "\n    def update(self, mlp_out, state, seqs):\n        return state\n",
            "`update` is for a PositionalLayer",
        ),
        "a setting": (EMBED.format("1") + "\n    need = Needs(packed=False)\n", "mean `needs`?"),
        "an option that is ignored": (
            INIT.format(", *, width=1"),
            "Mine: nothing reads the option `width`, so it has no effect",
        ),
        "options that are only stored": (
            INIT.format(", *, width=1, rows=2") + "        self.w, self.r = width, rows\n",
            "option `rows`, so",
        ),
    },
    "tensors": {
        "tensors": (
            PLAIN_INIT + HELD.format("self.x = torch.ones(16)", "self.x"),
            "neither parameter nor buffer: Mine.x, float32 [16]",
        ),
        "in a dict": (
            PLAIN_INIT + HELD.format("self.x = {'a': [torch.ones(16)]}", "self.x['a'][0]"),
            "Mine.x['a'][0], float",
        ),
        "in a list of modules": (
            PLAIN_INIT + HELD.format(KEEPS_MODULE, "self.parts[0].weight[:, 0]"),
            "Mine.parts[0].weight",
        ),
        "in a dataclass": (
            "@dataclass\nclass Box:\n    y: torch.Tensor\n\n\n"
            + PLAIN_INIT
            + HELD.format("self.box = Box(torch.ones(16))", "self.box.y"),
            "Mine.box.y, float32 [16]",
        ),
        "in a layer": (
            ATTEND.format("v").replace(
                "return MineLayer()",
                "made = MineLayer()\n        made.y = torch.ones(1)\n        return made",
            ),
            "Mine.layers.1.y",
        ),
        "in the file": (
            "Y = torch.ones(16)\n\n\n" + EMBED.format("Y * index[..., None]"),
            ": Y, float32 [16]",
        ),
        "in the class": (EMBED.format("self.y") + "\n    y = torch.ones(16)\n", "Mine.y, float"),
        "in a closure": (
            PLAIN_INIT + HELD.format("y = torch.ones(16)\n        self.f = lambda: y", "self.f()"),
            "y in Mine.f, float32 [16]",
        ),
    },
    "hooks": {
        "hooks": (
            EMBED.replace("return x + {}", "x + 1"),
            "Mine.embed returned None; it returns float64 [B, T, D] (here B = 3, T = 20, D = 16, ",
        ),
        "a pair of one": (
            ATTEND.format("v").replace(", state\n", "\n"),
            "MineLayer.attend returned float64",
        ),
        "heads before tokens": (
            ATTEND.format("v.transpose(1, 2)"),
            "float64 [B, T, H, K], and the state",
        ),
        "indices without rows": (
            EMBED.format("1")
            .replace("def embed(self, x, index, seqs)", "def indices(self, seqs)")
            .replace("x + 1", "seqs.place[0]"),
            "Mine.indices returned int64 [20]",
        ),
        "no state": (
            EMBED.replace("embed", "start").replace("return x + {}", "x + 1"),
            "Mine.start returned None",
        ),
        "a bias without heads": (
            BIAS.format("-distances.delta"),
            "Mine.bias returned float64 [1, 20, 20]",
        ),
        "an option over a hook": (
            PLAIN_INIT + "        self.start = 'rope'\n",
            "which hides the hook",
        ),
        "more than it needs": (
            BIAS.format("-distances.delta[:, None]") + "\n    needs = Needs(packed=False)",
            'Needs(bias="learned", packed=False)',
        ),
        "no number": (GATED + COUNTED.format("None"), "Mine.multiply_adds returned None"),
        "tokens that change": (
            EMBED.format("seqs.tokens.mul_(1)[..., None]"),
            "Mine.embed changes in place what it is given, int64 [3, 20]",
        ),
        "keys that change": (EMBED.format("seqs.key.add_(1)[:, None, None]"), "in place"),
        "queries that change": (ATTEND.format("v * q.mul_(2)"), "MineLayer.attend changes in"),
        "a parameter in two groups": (
            INIT.format("") + GROUPS.format("[(self.table, {}), (self.table, {'lr_factor': 2.0})]"),
            "each once, and a dict",
        ),
        "a negative factor": (
            INIT.format("") + GROUPS.format("[(self.table, {'lr_factor': -1.0})]"),
            "lr_factor, 0 or more",
        ),
    },
    "device": {
        "device": (
            EMBED.format("torch.arange(x.shape[1])[None, :, None].sin()"),
            "a tensor that torch.arange made on the CPU meets one of the model's device",
        ),
        "a list in training": (
            EMBED.format(f"torch.tensor([1.0] * 16).exp() * index[..., None] {TRAINING}"),
            "torch.tensor made",
        ),
        "the CPU by name": (
            EMBED.format("index[..., None] * torch.ones(16, device='cpu')"),
            "torch.ones made",
        ),
    },
    "state": {
        "state": (
            BIAS.format("-distances.delta[:, None] / self.longest") + KEEPS_LONGEST,
            "a hook keeps Mine.longest, int64 []",
        ),
        "another family's state": (
            EMBED.format("index[..., None]").replace("PositionalEncoding", "Rotary")
            + "\n    def start(self, x, index, seqs):\n        return ()\n"
            + "\n    def layer(self, i):\n        return PositionalLayer()\n",
            "measures or inner_products",
        ),
    },
    "positions": {
        "positions": (EMBED.format("0 * index[..., None]"), "its logits are NoPE's, bit for bit"),
        "NoPE where it is scored": (
            EMBED.format(f"index[..., None].to(x).sin() {TRAINING}"),
            "its logits are NoPE's, bit for bit",
        ),
        "NoPE where it is trained": (
            EMBED.format("index[..., None].to(x).sin() if not self.training else x"),
            "bit for bit, in training",
        ),
        "a bias that the softmax cancels": (
            BIAS.format(
                "distances.query.transpose(1, 2)[:, None].transpose(-1, -2).expand(1, 2, -1, "
                "distances.query.shape[1])"
            ),
            "its logits are NoPE's, but for rounding",
        ),
    },
    "costs": {
        "costs": (
            GATED,
            "adds 11,520 FLOPs to a forward of 3 x 20 tokens by torch's counter, and decla",
        ),
        "a count for all layers": (
            GATED + COUNTED.format("3 * 16 * 2 * extent.tokens"),
            "declares 34,560",
        ),
    },
    "causal": {
        "causal": (
            ATTEND.format(SEES_ALL),
            "at place 19, changed the logits of 19 earlier places, from place 0 on",
        ),
        "a leak in training": (EMBED.format(f"x.mean(1)[:, None] {TRAINING}"), "in training"),
        "a leak beyond the trained length": (
            EMBED.format(f"x.mean(1)[:, None] * (x.shape[1] > {LONGER})"),
            "place 111, changed",
        ),
    },
    "order": {
        "order": (ATTEND.format("v"), "does not reach the logits"),
    },
    "no dead parameter": {
        "no dead parameter": (INIT.format(""), "pe.table gets no gradient"),
    },
    "gradient": {
        "gradient": (
            EMBED.format("(x * index[..., None]).detach().sin()"),
            "where their gradient says ",
        ),
        "positions of half a head detached": (
            ATTEND.format("v * torch.cat((q[..., :1].detach(), q[..., 1:]), -1)"),
            "gradient says",
        ),
    },
    "rows": {
        "rows": (EMBED.format("x.mean(0) * 0.1"), "row 0 alone and padded: relative error"),
        "the bound of the batch": (EMBED.format("index[..., None] / seqs.bound"), "row 0 alone"),
        "the first row's key": (
            EMBED.format("seqs.key[:1].double() * index[..., None]"),
            "row 1 alone and padded: ",
        ),
        "a norm in training": (EMBED.format(f"x.mean(0) {TRAINING}"), "padded, in training: "),
    },
    "deterministic": {
        "deterministic": (EMBED.format("torch.rand(1)"), "two identical calls differ"),
        "noise after a step": (
            EMBED.format("index[..., None].to(x).sin()")
            + "\n    def after_step(self):\n        torch.rand(1)\n",
            "or seeds it",
        ),
        "noise in training": (EMBED.format(f"torch.randn(16) {TRAINING}"), "training"),
        "a seed": (EMBED.format("(torch.manual_seed(1) and torch.rand(1))"), "or seeds"),
        "a draw of __init__": (
            PLAIN_INIT + HELD.format("self.x = random.random()", "self.x"),
            "another decoder with the same weights",
        ),
    },
    "prefix": {
        "prefix": (
            EMBED.format("(index / index.max().clamp_min(1))[..., None].to(x)"),
            "prefix of 2 of 20 tokens: relative error",
        ),
        "a scale beyond the trained length": (
            EMBED.format(f"(index / max(1, x.shape[1] / {LONGER}))[..., None].to(x).sin()")
            + "\n    needs = Needs(packed=False)\n",
            "of 112 tokens: relative error",
        ),
        "the number of 3s to come in training": (
            EMBED.format(f"(seqs.tokens == 7).sum(1)[:, None, None] * index[..., None] {TRAINING}"),
            "tokens, in training: relative error",
        ),
    },
    "packed": {
        "packed": (
            EMBED.format("torch.arange(x.shape[1])[None, :, None].to(x)"),
            "packed sequence 1: relative error",
        ),
    },
    "bfloat16": {
        "bfloat16": (
            EMBED.format("((index.to(x) + 1000)[..., None] @ torch.ones(1, 16).to(x)).sin()"),
            "autocast: relative error",
        ),
    },
    "told": {
        "told": (
            EMBED.format("(index / self.setting.max_length)[..., None].to(x)"),
            "twice the tested length changes training logits",
        ),
    },
}


def outcome_of(report: ContractReport, check: str) -> CheckOutcome:
    (outcome,) = (outcome for outcome in report.outcomes if outcome.check == check)
    return outcome


@pytest.mark.parametrize("check", ["hooks", "gradient"])
def test_a_report_of_a_slip(check: str, here: Path) -> None:
    Path("mine.py").write_text(HEAD + SLIPS[check][check][0])
    report = examine(parse("mine.py:Mine"))
    outcome = outcome_of(report, check)
    assert not outcome.holds and not report.holds
    # The other checks run all the same, unless they would only repeat it.
    gates = {gate.__name__.removeprefix("check_") for gate in GATES}
    ends = [each.__name__ for each in CHECKS].index(f"check_{check.replace(' ', '_')}")
    assert len(report.outcomes) == (ends + 1 if check in gates else len(CHECKS))
    said = f"the other {len(CHECKS) - ends - 1} checks need that {check} holds"
    assert (said in report.warnings) == (check in gates)
    text = as_text(report)
    lines = [line.strip() for line in text.splitlines()]
    place = lines.index(f"BROKEN {check}: {outcome.expected}")
    assert lines[place + 1].removeprefix("but: ") == outcome.happened
    assert f"usually: {outcome.cause}" in lines[place + 2 :]


@pytest.mark.parametrize(
    ("title", "slip"), [(title, slip) for title, slips in SLIPS.items() for slip in slips]
)
def test_each_slip_is_explained(title: str, slip: str, here: Path) -> None:
    source, message = SLIPS[title][slip]
    Path("mine.py").write_text(HEAD + source)
    (check,) = (check for check in CHECKS if check.__name__ == f"check_{title.replace(' ', '_')}")
    (outcome,) = run_checks([check], parse("mine.py:Mine"))
    assert outcome.check == title and not outcome.holds and message in outcome.happened


def test_a_misspelt_hook_of_the_suite_s_own_is_named() -> None:
    attributes = {"__module__": "tape_arith.models.encodings.zz", "embedd": lambda self: None}
    kind = type("Zz", (PositionalEncoding,), attributes)
    (line,) = interface._misspelt_names(kind(examples.SETTING))
    assert "Zz.embedd" in line and "`embed`" in line


RIGHT = {
    "a gate that is counted": GATED + COUNTED.format("16 * 2 * extent.tokens"),
    "a buffer, and pairs from a dict": PLAIN_INIT
    + HELD.format("self.register_buffer('y', torch.rand(16))", "self.y")
    + GROUPS.format("{}.items()"),
    "options that are read": INIT.format(", *, width=1, rows=2, phase=3")
    + "        self.width, self.rows, self.x = width, rows, phase * 2\n"
    + "\n    def embed(self, x, index, seqs):\n"
    + "        table = self.table.sum() * self.width\n"
    + "        return x + table * (index * self.rows)[..., None].to(x).sin() / self.x\n",
    "tensors of the right device, and a helper with a name near a hook's": EMBED.format(
        "(self.started(index).to(x) * torch.tensor([1.0] * 16).to(x) + torch.tensor(2.0)"
        " + torch.zeros(16, device=x.device).to(x)).sin()"
    )
    + "\n    def started(self, index):\n        return index[..., None]\n",
    "its own NoPE": "class Mine(PositionalEncoding):\n    kind = 'none'\n",
    "a start as NoPE": GATED.replace("+ index[..., None].to(x).sin()", "").replace(
        "q * self.gate(x)[..., None]", "q * (1 + self.gate(x)[..., None])"
    )
    + COUNTED.format("16 * 2 * extent.tokens"),
}


@pytest.mark.parametrize("source", RIGHT.values(), ids=RIGHT)
def test_what_is_right_holds(source: str, here: Path) -> None:
    Path("mine.py").write_text(HEAD + source)
    report = examine(parse("mine.py:Mine"))
    assert report.holds, as_text(report)


def test_every_check_has_a_promise_and_a_slip() -> None:
    report = examine(parse("fox"))
    assert report.sources == {} and report.holds
    assert all(outcome.expected.endswith(".") for outcome in report.outcomes)
    assert set(SLIPS) == {outcome.check for outcome in report.outcomes}
    assert "packed=False" in outcome_of(report, "packed").happened
    assert "18 of 18" in as_text(report)  # what does not apply does not count


def test_warnings(here: Path) -> None:
    Path("mine.py").write_text(
        HEAD + "WIDTH = 3\n\n\nclass Mine(PositionalEncoding):\n    kind = 'strange'\n\n"
        "    def __init__(self, setting, *, width: int = WIDTH, size: tuple[int, ...] = (1, 2)):\n"
        "        super().__init__(setting)\n"
    )
    (width, size, docstring, kind, paper, formula) = examine(parse("mine.py:Mine")).warnings
    assert "'width'" in width and "`WIDTH`" in width and "(1, 2)" in size
    assert "docstring" in docstring and "'strange'" in kind
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
        ("torch.nn.Module", "other model"),
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
    said = [line for line in _warnings(mine) if "kind" in line]
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
    Path("mine.py").write_text(HEAD + SLIPS["causal"]["causal"][0])
    result = call("check", "mine.py:Mine", "--json")
    content = json.loads(result.out)
    assert result.code == 1 and content["schema"] == 1 and content["holds"] is False
    assert list(content) == ["schema", "holds", "name", "sources", "outcomes", "warnings"]
    assert list(content["sources"]) == ["mine.py:Mine"]
    assert {o["check"]: o["holds"] for o in content["outcomes"]}["causal"] is False
    result = call("check", f"abacus:k={10**13}", "--json")  # 640 TB
    (outcome,) = json.loads(result.out)["outcomes"]
    assert result.code == 1 and "the memory" in outcome["cause"]
