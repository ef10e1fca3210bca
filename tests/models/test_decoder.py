"""The decoder has the paper's size, weights of its seed alone, and logits in float32."""

import pytest
import torch

from tape_arith.arith.contracts.examples import example_batch
from tape_arith.arith.registry.load import load_classes
from tape_arith.arith.registry.locate import known_names
from tape_arith.models.build import build_decoder
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import Setting
from tests.helpers.small_decoders import build, setting_of

PAPER = DecoderConfig(19, 16, 1024, 16, 64, 1024)
SMALL = DecoderConfig(19, 3, 16, 2, 8, 24)


def setting(config: DecoderConfig) -> Setting:
    return setting_of(config, trained_length=124, max_length=244)


def small(name: str, seed: int = 0) -> Decoder:
    return build_decoder(SMALL, load_classes(name), setting(SMALL), seed)


def own(decoder: Decoder) -> dict[str, torch.Tensor]:
    """The weights that are not the encoding's."""
    return {k: v.detach() for k, v in decoder.named_parameters() if not k.startswith("pe.")}


@pytest.mark.parametrize("name", known_names("encoding"))
def test_the_size_of_the_paper(name: str) -> None:
    with torch.device("meta"):
        decoder = Decoder(PAPER, build(name, setting(PAPER)))
    gates = 16 * 1024 * (1024 + 1) if name == "wall" else 0  # one of each channel, with its bias
    assert 117e6 <= decoder.num_parameters() - gates <= 121e6
    products = sum(p.numel() for block in decoder.blocks for p in block.parameters() if p.ndim == 2)
    assert products == 16 * (4 * 1024**2 + 3 * 1024**2)


@pytest.mark.parametrize("name", known_names("encoding"))
def test_its_own_weights_depend_on_the_seed_alone(name: str) -> None:
    expected = own(small("nope"))
    torch.manual_seed(4)
    before = torch.random.get_rng_state()
    decoder = small(name)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert own(decoder).keys() == expected.keys()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in own(decoder).items())
    torch.manual_seed(5)
    again, other = small(name), small(name, seed=1)
    for key, tensor in again.named_parameters():
        assert torch.equal(tensor, decoder.get_parameter(key)), key
    key = "blocks.0.qkv.weight"
    assert not torch.equal(other.get_parameter(key), decoder.get_parameter(key))


@pytest.mark.parametrize("name", ["nope", "fire", "abacus", "tape"])
def test_logits_are_float32_whatever_the_autocast(name: str) -> None:
    decoder, seqs = small(name), example_batch()
    with torch.no_grad():
        assert decoder(seqs).dtype == torch.float32
        with torch.autocast("cpu", torch.bfloat16):
            logits = decoder(seqs)
            assert logits.dtype == torch.float32
        assert decoder.double()(seqs).dtype == torch.float64
    # Not merely cast in the end: a bfloat16 holds 8 bits.
    assert not torch.equal(logits, logits.bfloat16().float())
