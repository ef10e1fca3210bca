"""Check what every positional encoding promises: `tape-arith check NAME`.

Each check takes an encoding's name, builds a small decoder in float64 with all parameters
perturbed (zero-initialized parts would hide a fault) and raises AssertionError with what broke, or
returns why it does not apply (promises.py prints both). Only a naive twin can tell whether the
formula is the paper's.

Legend: B batch, T tokens, V vocabulary.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tape_arith.arith.contracts.promises import Check, CheckOutcome, ContractReport, outcome_of
from tape_arith.arith.registry.load import load_classes
from tape_arith.arith.registry.locate import Location, declarations, locate
from tape_arith.arith.registry.names import Name, source_hashes
from tape_arith.models.build import build_decoder
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import Setting, Workload
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences

VOCABULARY = 19
DIGITS, PLUS, EQUALS, END = tuple(range(4, 14)), 14, 17, 3
TRAINED_LENGTH = 28
TOLERANCE = 1e-10
SETTING = Setting(
    num_layers=3,
    num_heads=2,
    head_dim=8,
    hidden_size=16,
    trained_length=TRAINED_LENGTH,
    max_length=4 * TRAINED_LENGTH,
    digit_ids=DIGITS,
    separator_ids=(PLUS, EQUALS),
    end_id=END,
    longest_number=37,
    trained_number=9,
    ascending=True,
    unbroken=True,
    coupled="alike",
)
"""The setting of addition of up to 36 digits."""
# Relative error of all logits together. The worst logit alone says little: in 40 draws of weights
# its error passed 0.1 in 12 with tape, in 1 with rope; that of all together stayed below 0.07.
BFLOAT16_TOLERANCE = 0.1


def decoder_for(
    name: Name | str, num_layers: int = 3, max_length: int = 4 * TRAINED_LENGTH, **variant: Any
) -> Decoder:
    """Build a small float64 decoder in evaluation mode, with noise added to every parameter.

    variant  norm, loops and input_injection of its config
    """
    sizes = num_layers, SETTING.hidden_size, SETTING.num_heads, SETTING.head_dim
    config = DecoderConfig(VOCABULARY, *sizes, mlp_size=24, **variant)
    setting = replace(SETTING, num_layers=num_layers, max_length=max_length, loops=config.loops)
    decoder = build_decoder(config, load_classes(name), setting, seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in decoder.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.3 * noise)
    return decoder


def example_batch(length: int = 20, rows: int = 3, final_length: int | None = None) -> Sequences:
    """Make rows of `digits+digits=digits`, each with a key of its own."""
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(DIGITS[0], DIGITS[-1] + 1, (rows, length), generator=generator)
    tokens[:, length // 3], tokens[:, 2 * length // 3] = PLUS, EQUALS
    bound = final_length or min(length + 3, 4 * TRAINED_LENGTH)
    return Sequences(tokens, torch.full((rows,), bound), torch.arange(rows) + 7)


def forward(decoder: Decoder, seqs: Sequences) -> Tensor:
    with torch.no_grad():
        return decoder(seqs)


def assert_close(
    actual: Tensor, expected: Tensor, label: str, tolerance: float = TOLERANCE
) -> None:
    error = float((actual - expected).abs().max() / expected.abs().max())
    assert error <= tolerance, f"{label}: relative error {error:.1e}, at most {tolerance:.0e}"


def check_builds(name: Name | str) -> None:
    """It is built from a Setting and its options, and lists its matrix products.

    Usually: an argument after `setting` that is not keyword-only or has no default; options that
    `layer` reads but that are set after super().__init__(setting), which calls it; products of
    something that only another option makes.
    """
    tuple(decoder_for(name).pe.products(Workload(tokens=2, pairs=4, distances=4)))


def check_shape(name: Name | str) -> None:
    """Finite logits of the right shape at four times the trained length.

    Usually: a table of `trained_length` rows (it takes `setting.max_length`), a logarithm of or a
    division by a distance of 0, an exponential of a sum that grows.
    """
    seqs = example_batch(4 * TRAINED_LENGTH)
    logits = forward(decoder_for(name), seqs)
    assert logits.shape == (*seqs.tokens.shape, VOCABULARY), f"logits of shape {logits.shape}"
    assert bool(logits.isfinite().all()), "logits that are not finite"


def check_causal(name: Name | str) -> None:
    """The last token changes no earlier logit, not by one bit.

    Usually: a sum, a mean or a norm over all tokens; a cumulative sum that runs over keys before
    they are masked; weights of its own that are not masked before the softmax.
    """
    decoder, seqs = decoder_for(name), example_batch()
    other = seqs.tokens.clone()
    other[:, -1] = END
    before, after = forward(decoder, seqs), forward(decoder, replace(seqs, tokens=other))
    changed = (before[:, :-1] != after[:, :-1]).any(-1).any(0).nonzero().flatten().tolist()
    assert not changed, (
        f"another last token, at place {seqs.tokens.shape[1] - 1}, changed the logits of "
        f"{len(changed)} earlier places, from place {changed[0]} on"
    )
    assert not torch.equal(before[:, -1], after[:, -1]), "the last logits ignore the last token"


def check_order(name: Name | str) -> None:
    """Swapping two neighbouring digits of an operand reaches the logits after '='.

    Usually: a hook with a name that is never called; a state from `start` that `attend` ignores;
    positions that are the same for all tokens; a bias so strong that a token sees only itself.
    """
    decoder, seqs = decoder_for(name), example_batch()
    seqs.tokens[:, 2], seqs.tokens[:, 3] = DIGITS[1], DIGITS[8]
    swapped = seqs.tokens.clone()
    swapped[:, 2], swapped[:, 3] = DIGITS[8], DIGITS[1]
    change = (forward(decoder, seqs) - forward(decoder, replace(seqs, tokens=swapped)))[:, -1]
    assert float(change.abs().max()) > 1e-6, "the order of digits does not reach the logits"


def check_no_dead_parameter(name: Name | str) -> None:
    """Every parameter moves the logits, except those that the encoding calls inert.

    Usually: a module of __init__ whose result is thrown away; a detach() or item() on the way; an
    update in the last layer, which is never read. `inert` names parameters without effect that the
    paper's formula has.
    """
    # Beyond the trained length, to reach parameters that act only on long distances.
    decoder = decoder_for(name)
    logits = decoder(example_batch(2 * TRAINED_LENGTH))
    generator = torch.Generator().manual_seed(3)
    target = torch.randn(logits.shape, generator=generator, dtype=logits.dtype)
    (logits * target).sum().backward()
    for path, parameter in decoder.named_parameters():
        moved = parameter.grad is not None and float(parameter.grad.abs().max()) > 1e-9
        inert = path.startswith("pe.") and path.endswith(decoder.pe.inert)
        assert moved or inert, f"{path} gets no gradient"


def check_rows(name: Name | str) -> None:
    """A row's logits do not depend on its neighbours or on padding.

    Usually: a mean, a maximum or a length over the batch or over all T tokens, padding included;
    the bound that each row may know is `seqs.final_length`.
    """
    decoder, seqs = decoder_for(name), example_batch(rows=3)
    together = forward(decoder, seqs)
    padding = torch.zeros(1, 5, dtype=torch.int64)
    for row in range(3):
        one = slice(row, row + 1)
        tokens = torch.cat((seqs.tokens[one], padding), 1)
        alone = forward(decoder, Sequences(tokens, seqs.final_length[one], seqs.key[one]))
        assert_close(alone[:, :-5], together[one], f"row {row} alone and padded")


def check_deterministic(name: Name | str) -> None:
    """The same call twice, with a longer one between, gives the same bits.

    Usually: torch's own random numbers in a hook (take `random_words(seqs.key, ...)` of
    models/sequences.py); something kept on `self` from one call to the next, which the longer call
    changed.
    """
    decoder, seqs = decoder_for(name), example_batch()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(98)
        first = forward(decoder, seqs)
        forward(decoder, example_batch(4 * TRAINED_LENGTH))
        torch.manual_seed(99)
        assert torch.equal(first, forward(decoder, seqs)), "two identical calls differ"


def check_prefix(name: Name | str) -> None:
    """Logits of a whole row are those of a forward on each prefix: what scoring relies on.

    Usually: a number that depends on how many tokens there are so far: T, `index.max()`, the last
    token. The only length that may be used is `seqs.final_length`, from the prompt alone.
    """
    decoder, seqs = decoder_for(name), example_batch()
    full = forward(decoder, seqs)
    for length in range(1, seqs.tokens.shape[1]):
        prefix = forward(decoder, replace(seqs, tokens=seqs.tokens[:, :length]))
        assert_close(prefix[:, -1], full[:, length - 1], f"prefix of {length} tokens")


def check_packed(name: Name | str) -> str | None:
    """Sequences packed end to end, one empty, have the logits that each has alone.

    Usually: positions from arange(T) in place of `index`; a cumulative sum, or a distance, across
    `seqs.starts`. What cannot be packed says so: `needs = Needs(packed=False)`.
    """
    decoder, lengths = decoder_for(name), [20, 1, 0, 13]
    if not decoder.pe.needs.packed:
        return "its needs say packed=False"
    seqs = example_batch(rows=len(lengths))
    tokens = torch.cat([row[:n] for row, n in zip(seqs.tokens, lengths, strict=True)])[None]
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    final_length = torch.tensor([23, 40, 9, 60])
    packed = Sequences(tokens, final_length, seqs.key, starts=starts, longest=20)
    together = forward(decoder, packed)[0].split(lengths)
    for row, length in enumerate(lengths):
        if length:
            one = slice(row, row + 1)
            alone = Sequences(seqs.tokens[one, :length], final_length[one], seqs.key[one])
            assert_close(together[row], forward(decoder, alone)[0], f"packed sequence {row}")
    return None


def check_bfloat16(name: Name | str) -> None:
    """Autocast and plain bfloat16 weights stay near float64.

    Usually: indices, distances or angles in bfloat16, which beyond 256 skips whole numbers: they
    are computed in float32 at the least and outside autocast, as in models/families.
    """
    exact = forward(decoder_for(name), example_batch())
    low = decoder_for(name).float()
    with torch.autocast("cpu", torch.bfloat16):
        difference = forward(low, example_batch()).double() - exact
    error = float(difference.norm() / exact.norm())
    assert error <= BFLOAT16_TOLERANCE, f"autocast: relative error {error:.2f} of all logits"
    plain = forward(low.bfloat16(), example_batch())
    assert bool(plain.isfinite().all()), "logits of bfloat16 weights that are not finite"


CHECKS: tuple[Check[Name], ...] = (
    *(check_shape, check_causal, check_order, check_no_dead_parameter, check_rows),
    *(check_deterministic, check_prefix, check_packed, check_bfloat16),
)


def examine(name: Name) -> ContractReport:
    """Run every check, or `check_builds` alone if that one fails.

    Raises UsageError if a file of the encoding cannot be imported or its parts cannot be joined.
    """
    locations = _locations(name)
    for location in locations:
        location.load()
    outcomes = [run_check(check_builds, name)]
    if outcomes[0].holds:
        outcomes += [run_check(check, name) for check in CHECKS]
    warnings = [warning for location in locations for warning in _warnings(location)]
    if not all(location.is_builtin for location in locations):
        warnings.append(
            "no check knows whether the formula is its paper's: write it once more as plain loops, "
            "in float64, and compare (models/README.md has such a twin)"
        )
    sources = source_hashes(name.encoding)
    return ContractReport(str(name), sources, tuple(outcomes), tuple(warnings))


def run_check(check: Check[Name], name: Name) -> CheckOutcome:
    """Run one check on `name`. Raises UsageError if the encoding refuses how it is used."""
    files = [location.file for location in _locations(name)]
    return outcome_of(check, name, files, through=(UsageError,))


def _locations(name: Name) -> list[Location]:
    return [locate("encoding", part.name) for part in name.encoding.parts]


def _warnings(location: Location) -> Iterator[str]:
    """Describe what the file at `location` should declare but does not."""
    declared = location.declaration()
    name = declared.class_name
    for key, option in declared.options.items():
        if option.problem:
            yield f"{name}: option '{key}' {option.problem}"
    if not declared.summary:
        yield f"{name} has no docstring: its first line is what `tape-arith list` shows"
    kinds = {one.kind for one in declarations("encoding") if not one.package}
    if declared.kind not in kinds:
        yield f"{name} has the kind '{declared.kind}', which is none of {'; '.join(sorted(kinds))}"
    if not declared.paper:
        yield f"{name} does not say its `paper`: author, year and arXiv number"
