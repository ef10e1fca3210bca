"""Random words against the known answers of Philox 4x32-10 (Random123, kat_vectors)."""

import pytest
import torch

from tape_arith.models.sequences import philox, random_words

KNOWN = [
    ("00000000 " * 4, "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def numbers(text: str) -> list[torch.Tensor]:
    return [torch.tensor([int(word, 16)]) for word in text.split()]


@pytest.mark.parametrize("counter, key, answer", KNOWN)
def test_known_answers(counter: str, key: str, answer: str) -> None:
    a, b, c, d = numbers(counter)
    k0, k1 = numbers(key)
    assert list(philox((a, b, c, d), (k0, k1))) == numbers(answer)


def test_words_count_blocks_under_the_halves_of_a_key() -> None:
    counter = torch.arange(3)
    zero = torch.zeros_like(counter)
    halves = (torch.tensor(0x87654321), torch.tensor(0x7FEDCBA9))
    expected = torch.stack(philox((counter, zero, zero, zero), halves), -1).flatten()
    assert torch.equal(random_words(torch.tensor([0x7FEDCBA987654321]), 12)[0], expected)
    assert random_words(torch.tensor([0]), 4)[0].tolist() == numbers(KNOWN[0][2])


@pytest.mark.parametrize("count", [1, 4, 5, 13])
def test_fewer_words_are_the_first_of_more_whatever_the_other_keys(count: int) -> None:
    keys = torch.arange(5) + 2**62
    assert random_words(keys, count).shape == (5, count)
    assert torch.equal(random_words(keys, count), random_words(keys, 16)[:, :count])
    assert torch.equal(random_words(keys[2:3], count), random_words(keys, count)[2:3])
