"""Check what every positional encoding promises: `tape-arith check NAME`.

Each check takes an encoding's name, builds a small decoder in float64 with all parameters
perturbed (zero-initialized parts would hide a fault) and raises AssertionError with what broke, or
returns why it does not apply (examine.py runs all). Only a naive twin can tell whether the
formula is the paper's.
"""

import random
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tape_arith.arith.contracts import examples
from tape_arith.arith.contracts.examples import (
    DIGITS,
    END,
    TRAINED_LENGTH,
    both_modes,
    example_batch,
    forward,
    one_row,
    packed_batch,
)
from tape_arith.arith.registry.names import Name, parse, told_tested_length
from tape_arith.models.decoder import Decoder
from tape_arith.models.encoding import Workload
from tape_arith.models.sequences import Sequences

TOLERANCE = 1e-10
# Of a model, which computes in float32, where the shape of a batch changes the last bits; and how
# much a later token may change in a batch of one shape, as in a convolution by Fourier transforms.
MODEL_TOLERANCE, MODEL_SLACK = 1e-4, 1e-5
# Relative error of all logits together. The worst logit alone says little: in 40 draws of weights
# its error passed 0.1 in 12 with tape, in 1 with rope; that of all together stayed below 0.07.
BFLOAT16_TOLERANCE = 0.1
# Of the encoding's own FLOPs, and of those of a decoder with NoPE at the sizes of the checks.
COST_TOLERANCE, COST_NEGLIGIBLE = 0.1, 0.001


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference, as a part of the largest expected number."""
    return float((actual - expected).abs().max() / expected.abs().max())


def assert_close(actual: Tensor, expected: Tensor, label: str) -> None:
    error = relative_error(actual, expected)
    most = TOLERANCE if actual.dtype == torch.float64 else MODEL_TOLERANCE
    assert error <= most, f"{label}: relative error {error:.1e}, at most {most:.0e}"


def check_builds(name: Name | str) -> None:
    """It is built from a Setting and its options, and lists its matrix products.

    Usually: an argument after `setting` that is not keyword-only or has no default; options that
    `layer` reads but that are set after super().__init__(setting), which calls it; a `layer` that
    returns no PositionalLayer; products of something that only another option makes; a file that
    sets torch's default type.
    """
    before = _torch_settings()
    try:
        tuple(examples.decoder_for(name).pe.products(Workload(tokens=2, pairs=4, distances=4)))
        assert before == _torch_settings(), "it changes settings of torch, which all else shares"
    finally:
        torch.set_default_dtype(before[0])


def check_shape(name: Name | str) -> None:
    """Finite logits of the right shape at four times the trained length.

    Usually: a table of `trained_length` rows (it takes `setting.max_length`), a logarithm of or a
    division by a distance of 0, an exponential of a sum that grows.
    """
    seqs = example_batch(4 * TRAINED_LENGTH)
    for decoder, when in both_modes(name):
        logits = forward(decoder, seqs)
        assert logits.shape == (*seqs.tokens.shape, decoder.config.vocabulary_size), (
            f"logits of shape {logits.shape}"
        )
        assert bool(logits.isfinite().all()), f"logits that are not finite{when}"


def check_deterministic(name: Name | str) -> None:
    """The same weights and keys give the same bits, in training too, whatever was called before.

    Usually: torch's own random numbers in a hook, or dropout (take `random_words(seqs.key, ...)` of
    models/sequences.py); something kept on `self` from one call to the next; numbers drawn in
    __init__ that are no buffer, so that no checkpoint has them.
    """
    seqs, other = example_batch(), examples.decoder_for(name, seed=1)
    with torch.random.fork_rng(devices=[]):
        for decoder, when in both_modes(name):
            torch.manual_seed(98)
            first = forward(decoder, seqs)
            forward(decoder, example_batch(4 * TRAINED_LENGTH))
            torch.manual_seed(99)
            before = _global_generators()
            assert torch.equal(first, forward(decoder, seqs)), f"two identical calls differ{when}"
            decoder.pe.after_step()
            assert before == _global_generators(), (
                f"it draws from the generator of torch, numpy or random, or seeds it{when}"
            )
            other.load_state_dict(decoder.state_dict())
            same = torch.equal(first, forward(other.train(decoder.training), seqs))
            assert same, f"another decoder with the same weights and buffers differs{when}"


def _torch_settings() -> tuple[torch.dtype, bool, int, str, bool]:
    """Return torch's settings that a file may change for all others, the default type first."""
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
    )


def _global_generators() -> tuple[object, ...]:
    _, numbers, position, *_ = np.random.get_state()
    torch_state = torch.get_rng_state().numpy().tobytes()
    return torch_state, random.getstate(), np.asarray(numbers).tobytes(), position


def check_positions(name: Name | str) -> str | None:
    """Its logits are not those of NoPE with the same weights, neither in scoring nor in training.

    Usually: a hook with a name that is never called; a hook that changes what it does not return; a
    bias that is the same for all keys, which the softmax cancels.
    """
    if vars(type(examples.decoder_for(name).pe)).get("kind") == "none":
        return "it says that its kind is none"
    nope = examples.decoder_for("nope")
    batches = (example_batch(), example_batch(4 * TRAINED_LENGTH))
    plain = [forward(nope, seqs) for seqs in batches]
    for decoder, when in both_modes(name):
        logits = [forward(decoder, seqs) for seqs in batches]
        largest = max(map(relative_error, logits, plain))
        exactness = "but for rounding" if largest else "bit for bit"
        assert largest > TOLERANCE, f"its logits are NoPE's, {exactness}{when}"
    return None


def check_causal(name: Name | str) -> None:
    """The last token changes no earlier logit, not by one bit, in short and in long rows.

    Usually: a sum, a mean or a norm over all tokens; a cumulative sum that runs over keys before
    they are masked; weights of its own that are not masked before the softmax; of a model, both
    directions of a recurrent network, or a convolution that is padded on both sides.
    """
    for seqs in (example_batch(), example_batch(4 * TRAINED_LENGTH)):
        other = seqs.tokens.clone()
        other[:, -1] = END
        for decoder, when in both_modes(name):
            before, after = forward(decoder, seqs), forward(decoder, replace(seqs, tokens=other))
            slack = 0 if before.dtype == torch.float64 else MODEL_SLACK * before.abs().max()
            same = (before[:, :-1] - after[:, :-1]).abs() <= slack
            changed = (~same).any(-1).any(0).nonzero().flatten().tolist()
            assert not changed, (
                f"another last token, at place {seqs.tokens.shape[1] - 1}, changed the logits of "
                f"{len(changed)} earlier places, from place {changed[0]} on{when}"
            )
            ignored = torch.equal(before[:, -1], after[:, -1])
            assert not ignored, f"the last logits ignore the last token{when}"


def check_order(name: Name | str) -> None:
    """Swapping two neighbouring digits of an operand reaches the logits after '='.

    Usually: a hook with a name that is never called; a state from `start` that `attend` ignores;
    positions that are the same for all tokens; a bias so strong that a token sees only itself.
    """
    decoder, seqs = examples.decoder_for(name), example_batch()
    seqs.tokens[:, 2], seqs.tokens[:, 3] = DIGITS[1], DIGITS[8]
    swapped = seqs.tokens.clone()
    swapped[:, 2], swapped[:, 3] = DIGITS[8], DIGITS[1]
    change = (forward(decoder, seqs) - forward(decoder, replace(seqs, tokens=swapped)))[:, -1]
    assert float(change.abs().max()) > 1e-6, "the order of digits does not reach the logits"


def check_rows(name: Name | str) -> None:
    """A row's logits do not depend on its neighbours or on padding, in training neither.

    Usually: a mean, a maximum or a length over the batch or over all T tokens, padding included, as
    `seqs.final_length.max()` or `seqs.bound`; the bound that each row may know is its own
    `seqs.final_length`.
    """
    seqs, padding = example_batch(rows=3), torch.zeros(5, dtype=torch.int64)
    for decoder, when in both_modes(name):
        together = forward(decoder, seqs)
        for row in range(3):
            padded = one_row(seqs, row, torch.cat((seqs.tokens[row], padding)))
            # Scoring has no training batch whose key rows could share.
            padded = replace(padded, batch_key=seqs.batch_key if decoder.training else 1)
            alone = forward(decoder, padded)[0, :-5]
            assert_close(alone, together[row], f"row {row} alone and padded{when}")


def check_prefix(name: Name | str) -> None:
    """Logits of a whole row are those of a forward on each prefix: what scoring relies on.

    Usually: a number that depends on how many tokens there are so far: T, `index.max()`, the last
    token. The only length that may be used is `seqs.final_length`, from the prompt alone.
    """
    for seqs in (example_batch(), example_batch(4 * TRAINED_LENGTH)):
        longest = seqs.tokens.shape[1]
        some = sorted({1, 2, longest // 2, min(longest - 1, TRAINED_LENGTH + 1)})
        for decoder, when in both_modes(name):
            full = forward(decoder, seqs)
            each = not decoder.training and longest < TRAINED_LENGTH
            for length in range(1, longest) if each else some:
                prefix = forward(decoder, replace(seqs, tokens=seqs.tokens[:, :length]))
                label = f"prefix of {length} of {longest} tokens{when}"
                assert_close(prefix[:, -1], full[:, length - 1], label)


def check_packed(name: Name | str) -> str | None:
    """Sequences packed end to end, one empty, have the logits that each has alone.

    Usually: positions from arange(T) in place of `index`; a cumulative sum, or a distance, across
    `seqs.starts`. What cannot be packed says so: `needs = Needs(packed=False)`.
    """
    seqs, each_alone = packed_batch()
    for decoder, when in both_modes(name):
        if not decoder.pe.needs.packed:
            return "its needs say packed=False"
        together = forward(decoder, seqs)[0].split([one.width for one in each_alone])
        for row, (logits, alone) in enumerate(zip(together, each_alone, strict=True)):
            if alone.width:
                assert_close(logits, forward(decoder, alone)[0], f"packed sequence {row}{when}")
    return None


def check_bfloat16(name: Name | str) -> None:
    """Autocast and plain bfloat16 weights stay near float64.

    Usually: indices, distances or angles in bfloat16, which beyond 256 skips whole numbers: they
    are computed in float32 at the least and outside autocast, as in models/families.
    """
    exact = forward(examples.decoder_for(name), example_batch())
    low = examples.decoder_for(name).float()
    with torch.autocast("cpu", torch.bfloat16):
        difference = forward(low, example_batch()).double() - exact
    error = float(difference.norm() / exact.norm())
    assert error <= BFLOAT16_TOLERANCE, f"autocast: relative error {error:.2f} of all logits"
    plain = forward(low.bfloat16(), example_batch())
    assert bool(plain.isfinite().all()), "logits of bfloat16 weights that are not finite"


def check_told(name: Name | str) -> None:
    """Training depends on the longest tested length just if the class says so by `told_by`.

    Usually: a table, a range or a scale from `setting.max_length` or `setting.longest_number`.
    `told_by` is the option that sets it by hand; results rank encodings that have one apart.
    """
    shorter, longer = (
        examples.decoder_for(name, max_length=n * TRAINED_LENGTH).train() for n in (4, 8)
    )
    with torch.no_grad():  # tables that differ in size have their first rows in common
        for small, large in zip(shorter.parameters(), longer.parameters(), strict=True):
            large[tuple(slice(size) for size in small.shape)] = small
    change = relative_error(forward(longer, example_batch()), forward(shorter, example_batch()))
    named = parse(name) if isinstance(name, str) else name
    if told_tested_length(named.encoding):
        assert change > TOLERANCE, "it says `told_by`, but a longer test changes no training logit"
    else:
        assert change <= TOLERANCE, (
            f"twice the tested length changes training logits by {change:.1e}"
        )


def check_costs(name: Name | str) -> None:
    """`multiply_adds`, or `products`, count the matrix products that it adds to attention.

    Usually: a projection that neither of them names; a count for one layer in `products`, or for
    all in `multiply_adds`; `pairs` or `distances` where it multiplies by `tokens`. They count what
    torch's counter counts: matrix products, over all pairs of a row, in training.
    """
    seqs = example_batch()
    rows, tokens = seqs.tokens.shape
    extent = Workload(rows * tokens, rows * tokens**2, tokens**2)
    decoder = examples.decoder_for(name).train()
    total, plain = _counted_flops(decoder, seqs), _counted_flops(examples.decoder_for("nope"), seqs)
    counted = max(total - plain, 0)  # attention of its own may need less
    declared = sum(product.forward for product in decoder.pe.products(extent))
    off = abs(counted - declared)
    assert off <= max(COST_TOLERANCE * counted, COST_NEGLIGIBLE * plain), (
        f"it adds {counted:,} FLOPs to a forward of {rows} x {tokens} tokens by torch's counter, "
        f"and declares {declared:,}"
    )


def _counted_flops(decoder: Decoder, seqs: Sequences) -> int:
    with FlopCounterMode(display=False) as counter:
        forward(decoder, seqs)
    return int(counter.get_total_flops())
