"""What a name says that names nothing, and an encoding of options that make no sense."""

from pathlib import Path

import pytest

from tape_arith.arith.registry.names import parse
from tape_arith.models.errors import UsageError
from tests.helpers.messages import is_of
from tests.helpers.small_decoders import build, setting

REFUSED = {
    "t5:max_distance=16": "t5: max_distance must be 17 or more, not 16",
    "hard-alibi:windowed=5": "hard-alibi: windowed must be 1 to 4 (heads), not 5",
    "sandwich:width=7": "sandwich: width must be even and 2 or more, not 7",
    "shaw:kmax=0": "shaw: kmax must be 1 or more, not 0",
    "fire:width=0": "fire: width must be 1 or more, not 0",
    "fire:init_l=-1": "fire: init_l must be more than 0, not -1",
    "cope:positions=1": "cope: positions must be 2 or more, not 1",
    "path:rank=0": "path: rank must be 1 or more, not 0",
    "dape:base=rope": "'dape:base=rope': base must be one of kerple-log, alibi, fire, not 'rope'",
    "rope-partial:fraction=1.5": "rope-partial: fraction must be in (0, 1], not 1.5",
    "p-rope:p=0.01": "p-rope: p must be in (0, 1] and keep a frequency of 8, not 0.01",
    "xpos:scale_base=0": "xpos: scale_base must be more than 0, not 0",
    "abacus:k=-1": "abacus: k must be 0 or more, not -1",
    "coupling:s=0": "coupling: s must be 1 or more, not 0",
    "bipe:rows=0": "bipe: rows must be 1 or more, not 0",
    "bipe:k=-1": "bipe: k must be 0 or more, not -1",
    "learned:rows=51": (
        "rows=51 is less than the longest tested sequence, 52 tokens; choose rows >= 52"
    ),
    "tape:context=no-mlp:width=12": "tape: width=12 does nothing with context=no-mlp: leave it out",
    "tape:context=no-mlp:form=non-equivariant": (
        "tape: form=non-equivariant changes W1 and W2, and context=no-mlp has none: take one of "
        "the two"
    ),
    "tape-heads:clamp=-0.5": "tape-heads: clamp must be above 0, or 0 for none, not -0.5",
    "tape:start=fourier:base=50": "tape: base=50 does nothing with start=fourier: leave it out",
    "tape:form=flat": (
        "'tape:form=flat': form must be one of tensor, non-equivariant, vector, not 'flat'"
    ),
    "tape-heads:form=vector": (
        "unknown option of tape-heads 'form': Known: base, clamp, context, start, width"
    ),
    "rope+fire": (
        "'fire+rope': fire and rope each define attention, and one part at most can; the others "
        "only embed"
    ),
    "abacus+nope": "'abacus+nope': nope adds nothing to the others; leave it out",
    "abacus+fire+yarn": "'yarn' changes the frequencies of a rotary encoding; FIRE has none",
    "selective-rope+yarn": (
        "'yarn' changes the frequencies of a rotary encoding; SelectiveRoPE has none"
    ),
    "tape:start=learned+pi": "'pi' cannot act on TAPE here: it has no frequencies to change",
    "tape:start=fourier+ntk": (
        "'ntk' cannot act on TAPE here: its frequencies are not powers of one base; use pi"
    ),
    "tape-heads:start=fourier+ntk-dynamic": (
        "'ntk-dynamic' cannot act on TapeHeads here: its frequencies are not powers of one base; "
        "use pi"
    ),
    "tape:start=fourier+yarn": (
        "'yarn' cannot act on TAPE here: its frequencies are not those that ramp=code counts; use "
        "yarn:ramp=paper"
    ),
    "rope-partial:fraction=0.125+ntk": (
        "'ntk' cannot act on RoPEPartial here: it has one frequency, which is the highest and the "
        "lowest; use pi"
    ),
    "rope+ntk-dynamic:factor=0.5": "ntk-dynamic: factor must be 1 or more, not 0.5",
    "rope:base=1": "base must be more than 1, not 1",
    "hybrid:period=1": "hybrid: period must be 2 or more, not 1",
    "hybrid:offset=2": "hybrid: offset must be from 0 to 1 for period=2, not 2",
    "hybrid:period=8": "hybrid: period must be at most the number of layers, 2, not 8",
    "repo+yarn": (
        "'yarn' cannot act on RePo here: most of its layers compute their indices, which need not "
        "grow with the length"
    ),
    "rand-rope+redraw:draw=0": "redraw: draw must be from 1 to 4294967295, not 0",
    # What scales or draws indices, where that does nothing.
    "aug-nope": (
        "aug- scales indices, and NoPE does not compute with its index: it looks it up, draws it "
        "at random or never reads it"
    ),
    "rope+redraw": "'redraw' changes randomized positions; RoPE has none",
    "rand-rope+yarn": (
        "'yarn' cannot act on RandRoPE here: its positions come from the same range at every length"
    ),
    "bipe+pi": (
        "'pi' cannot act on BiPE here: it rotates by the segment's number, which does not grow "
        "with the length"
    ),
}

NAMES = {
    "tap": "unknown encoding 'tap': did you mean 'tape'?",
    "": "unknown encoding '': Known: ...",
    "__init__": "unknown encoding '__init__': Known: ...",
    "fire:initl=3": "unknown option of fire 'initl': did you mean 'init_l'? Known: init_l, width",
    "fire:": "'fire:': an option reads key=value, not ''",
    "fire:init_l=inf": "'fire:init_l=inf': init_l must be a number, not 'inf'",
    "fire:width=3:width=4": "'fire:width=3:width=4' gives width twice",
    "rope+yran": "unknown encoding or extrapolation 'yran': did you mean 'yarn'?",
    "abacus+rope+abacus:k=3": "'abacus+rope+abacus:k=3' names abacus twice",
    "abacus+yarn:ramp=paper+rope": (
        "'abacus+yarn:ramp=paper+rope': yarn:ramp=paper is for test time and comes last, and at "
        "most one extrapolation can follow a plus"
    ),
    "tape+yarn@from=rope": "'tape+yarn@from=rope': yarn is for test time and comes last",
    "rope+yarn:ramp=slow": "'yarn:ramp=slow': ramp must be one of code, paper, not 'slow'",
    "rope+yarn+yarn": (
        "'rope+yarn+yarn': yarn is for test time and comes last, and at most one extrapolation "
        "can follow a plus"
    ),
    "gone.py:Mine": "'gone.py': there is no such file, as seen from this folder",
    "mine.py": "'mine.py': say which class of the file it is, as in mine.py:Mine",
    "mine.py:Other": (
        ".../mine.py defines no public class 'Other', only Mine: names and options are read from "
        "where the class is written"
    ),
    "mine.py:Mine:scale=x": "'mine.py:Mine:scale=x': scale must be a number, not 'x'",
    "mine.py:Mine+./mine.py:Mine": "'mine.py:Mine+./mine.py:Mine' names mine.py:Mine twice",
    "broken.py:Mine": ".../broken.py is not Python: line 1: invalid syntax",
    "null.py:Mine": ".../null.py is not Python: ...",
    "empty.py:Mine": ".../empty.py defines no class for 'empty.py:Mine'",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_refused(name: str, here: Path) -> None:
    Path("mine.py").write_text("class Mine:\n    def __init__(self, *, scale: float = 1.0): ...\n")
    Path("broken.py").write_text("class Mine(:\n")
    Path("null.py").write_bytes(b"class Mine: pass\0\n")
    Path("empty.py").write_text("x = 1\n")
    with pytest.raises(UsageError) as caught:
        parse(name)
    assert is_of(str(caught.value), NAMES[name]), str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(name, setting(num_heads=4, head_dim=16))
    assert is_of(str(caught.value), REFUSED[name]), str(caught.value)
