"""An encoding looks the same in every figure, and those drawn most are told apart."""

from itertools import combinations

import numpy as np
import pytest

from tape_arith.arith.figures.looks import looks_of

OFTEN = (
    *("rope", "tape", "tape-heads", "nope", "fire", "rand-rope", "aug-rope", "aug-tape"),
    *("alibi", "t5", "abacus", "cope", "fox", "coupling"),
)
OTHERS = (
    *("bipe", "dape", "hard-alibi", "kerple-log", "kerple-power", "learned", "learned-offset"),
    *("nape", "p-rope", "path", "pope", "rand-alibi", "rand-fire", "rand-learned", "shaw", "xpos"),
    *("rand-sinusoidal", "rope-partial", "sandwich", "selective-rope", "sinusoidal"),
    *("stick-breaking", "aug-fire", "fire:init_l=512", "fox:b_f=5", "abacus+fire", "rope+yarn"),
)
"""The other encodings of `results/mini`."""
# Machado et al. (2009), severity 1, for linear RGB.
SIGHT = {
    "usual": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def linear(colour: str) -> np.ndarray:
    """Return a colour "#rrggbb" as linear RGB."""
    share = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Return linear RGB in Oklab, in which distances are about as large as they look."""
    cones = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
    sides = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    return np.array(sides) @ np.cbrt(np.array(cones) @ np.clip(rgb, 0, 1))


def test_what_is_drawn_often_keeps_its_look_in_every_figure() -> None:
    alone = {name: looks_of([name])[name] for name in OFTEN}
    everything = looks_of([*OTHERS, *OFTEN])
    assert {name: everything[name] for name in OFTEN} == alone
    assert len({(look.colour, look.dashes) for look in alone.values()}) == len(OFTEN)
    assert len({alone[name].colour for name in OFTEN[:8]}) == 8
    assert len({alone[name].colour for name in OFTEN[8:]}) == 6


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_are_told_apart(sight: str) -> None:
    colours = {look.colour for look in looks_of(OFTEN).values()}
    seen = [oklab(np.array(SIGHT[sight]) @ linear(colour)) for colour in sorted(colours)]
    apart = min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2))
    assert apart > 0.08  # 0.05 with seaborn's "colorblind", whose ten colours repeat


@pytest.mark.parametrize("colour", [look.colour for look in looks_of(OFTEN[:8]).values()])
def test_a_colour_is_read_on_light_and_on_dark_pages(colour: str) -> None:
    def luminance(shade: str) -> float:
        return float(linear(shade) @ [0.2126, 0.7152, 0.0722]) + 0.05

    assert luminance("#ffffff") / luminance(colour) > 2
    assert luminance(colour) / luminance("#14171b") > 2


def test_no_two_of_a_figure_look_the_same() -> None:
    for count, differ in ((32, "dashes"), (64, "sign")):
        drawn = looks_of(f"pe{number}" for number in range(count)).values()
        assert len({(look.colour, getattr(look, differ)) for look in drawn}) == count
    variants = looks_of(["rope", "rope+yarn", "rope:base=500"])
    assert len({look.colour for look in variants.values()}) == 1
    assert len({look.dashes for look in variants.values()}) == 3
