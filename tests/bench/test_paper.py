"""The paper's setting: what our counts say in it, and that every line comes out."""

from typing import Any

import pytest
import torch

from tape_arith.arith.bench import paper
from tape_arith.arith.bench.measure import Measurement, Options
from tape_arith.arith.training import flops
from tape_arith.arith.training.flops import forward_flops, matmuls, padded
from tape_arith.models.build import build
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import PositionalEncoding
from tape_arith.models.encodings.tape import TapeLayer
from tape_arith.models.hardware import Hardware
from tape_arith.models.names.locate import known_names
from tape_arith.models.names.parse import parse


@pytest.fixture(scope="module")
def lines() -> list[Measurement]:
    return list(paper.measure(Options(quick=True)))


def encoding(name: str) -> PositionalEncoding:
    with torch.device("meta"):
        return build(name, paper.setting_of(paper.SIZES, paper.TOKENS))


def macs(name: str) -> float:
    pe = encoding(name)
    return forward_flops(matmuls(paper.SIZES, pe, padded(1, paper.TOKENS))) / 2


@pytest.mark.parametrize("name, printed", [("rope", "160.46"), ("fire", "165.69")])
def test_the_macs_of_table_3_come_out_to_the_last_digit(name: str, printed: str) -> None:
    assert f"{macs(name) / 1e9:.2f}" == printed == f"{paper.TABLES[name].macs:.2f}"


def test_the_papers_own_tape() -> None:
    """Table 3 holds the form that mixes heads, as the authors' code has it: every layer updates
    e, of which both halves are stored, 128 numbers a token and head, and one of them mixed."""
    pairs, tokens, layers = 1024**2, 1024, 12
    gathered = layers * pairs * 2 * 64 * 12
    gate = layers * tokens * 768 * 48
    mixed = layers * tokens * 2 * (48 * 12) * 32
    assert f"{(macs('rope') + gathered + gate + mixed) / 1e9:.2f}" == "180.69"
    # Ours: a complex number a frequency, no update in the last layer, an H x H matrix a token.
    ours = 11 * (pairs * 64 * 12 + tokens * (768 * 48 + 144 * 48 + 144 * 64))
    assert macs("tape-heads") == macs("rope") + ours


@pytest.mark.parametrize("name, printed", [("rope", "154.89"), ("fire", "154.90")])
def test_its_millions_are_two_to_the_twentieth(name: str, printed: str) -> None:
    with torch.device("meta"):
        decoder = Decoder(paper.SIZES, encoding(name))
    assert f"{decoder.num_parameters() / 2**20:.2f}" == printed


def test_formula_and_counter_agree(lines: list[Measurement]) -> None:
    counts = [line for line in lines if "counter" in line.name]
    assert len(counts) == len([name for name in paper.ENCODINGS if name in known_names("encoding")])
    for line in counts:
        assert line.ratio == 1 and line.note == "equal"


def test_a_count_that_differs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "counted", lambda function: flops.counted(function) + 7)
    found = paper.measure(Options(quick=True, encodings=(parse("rope"),)))
    (line,) = [line for line in found if "counter" in line.name]
    assert line.note == "DIFFERS from the formula by +7"


def test_every_encoding_has_its_lines(lines: list[Measurement]) -> None:
    for name in paper.ENCODINGS:
        mine = [line for line in lines if line.name.startswith((f"{name}:", f"{name},"))]
        mine += [line for line in lines if line.name == name]
        if name not in known_names("encoding"):
            assert [line.value for line in mine] == [None]
            assert mine[0].note.startswith("not there yet")
            continue
        measured = {line.name.split(": ")[1] for line in mine if line.value is not None}
        assert {"parameters", "MACs by formula", "an attention layer"} <= measured
        assert "a step of the whole model" in measured
        assert ("an attention layer / rope's" in measured) == (name != "rope")


def test_what_is_missing_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "ENCODINGS", ("rope", "no-such-encoding"))
    found = [line for line in paper.measure(Options(quick=True)) if line.value is None]
    (line,) = [line for line in found if line.name == "no-such-encoding"]
    assert line.note.startswith("not there yet: unknown encoding 'no-such-encoding'")


def test_fused_is_measured_where_it_can_be_and_else_says_why(lines: list[Measurement]) -> None:
    """The tests hide every GPU."""
    for name in ("tape", "tape-heads"):
        (line,) = [line for line in lines if line.name.startswith(f"{name}, fused")]
        assert line.value is None and "fused" in line.note
        assert any(line.name.startswith(f"{name}, not fused: an attention") for line in lines)
    assert not any("rope, " in line.name or "fire, " in line.name for line in lines)


def test_beside_the_papers_times(lines: list[Measurement]) -> None:
    """Table 4: 5.63 for TAPE without fusion, 2.08 for RoPE, 5.56 for FIRE, in 1e-4 s."""
    limits = {line.name: line.limit for line in lines}
    assert limits["tape, not fused: an attention layer"] == pytest.approx(563e-6)
    assert limits["rope: an attention layer"] == pytest.approx(208e-6)
    assert limits["fire: an attention layer / rope's"] == pytest.approx(5.56 / 2.08)
    assert limits["rope: a step of the whole model"] is None
    by_name = {line.name: line for line in lines}
    rope = by_name["rope: an attention layer"]
    for line in lines:
        if line.name.endswith("an attention layer / rope's"):
            alone = by_name[line.name.removesuffix(" / rope's")]
            assert line.value == pytest.approx((alone.value or 0) / (rope.value or 0))


def test_a_fused_kernel_stands_beside_the_fused_time() -> None:
    class Fused:
        name = "fused"

    class Other:
        name = "sdpa"

    tape = paper.Variant("tape", ", fused", Fused())  # type: ignore[arg-type]
    assert tape.published == pytest.approx(256e-6)
    assert tape._replace(backend=Other()).published == pytest.approx(563e-6)  # type: ignore[arg-type]
    assert tape._replace(name="rope").published == pytest.approx(208e-6)
    assert tape._replace(name="nope").published is None


def test_the_timed_layer_has_a_state_as_the_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the first one's, which is no function of the tokens and the same for all heads."""
    honest, seen = TapeLayer.attend, []

    def attend(self: TapeLayer, *given: Any) -> Any:
        seen.append(given[4].e)
        return honest(self, *given)

    monkeypatch.setattr(TapeLayer, "attend", attend)
    setting = paper.setting_of(paper.QUICK_SIZES, 16)
    decoder = Decoder(paper.QUICK_SIZES, build("tape", setting)).eval()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.normal_(std=0.3, generator=torch.Generator().manual_seed(1))
        backend = paper.not_fused(decoder.pe, Hardware("cpu", torch.float32))
        work = paper.attention_layer(decoder, decoder.pe, backend, 16)
        work()
        work()
    first, *timed = seen
    assert float((first - first[:, :, :1]).abs().max()) == 0
    assert len(timed) == 2 and torch.equal(*timed)
    assert float((timed[0] - timed[0][:, :, :1]).abs().max()) > 1e-3


def test_nothing_is_left_switched_off() -> None:
    """Between two lines, gradients are on and autocast is off."""
    for _ in paper.measure(Options(quick=True, encodings=(parse("rope"),))):
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
