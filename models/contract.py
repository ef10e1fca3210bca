"""What every positional encoding promises, as checks to run: `tape-arith check NAME`.

Each check takes an encoding's name, builds a small decoder in float64 with all parameters
perturbed (zero-initialized parts would make it vacuous) and raises AssertionError with what broke.
Its docstring says what is promised and, for whoever breaks it, how that usually comes about. The
tests run them over the whole folder; whoever writes an encoding of his own runs them too.
What they cannot know is whether the encoding is the one of its paper: that takes a naive twin.

Legend: B batch, T tokens, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from models.build import build_decoder
from models.decoder import Decoder, DecoderConfig
from models.encoding import Setting
from models.products import Extent
from models.sequences import Sequences

VOCABULARY = 19
DIGITS, PLUS, EQUALS, END = tuple(range(4, 14)), 14, 17, 3
TRAINED_LENGTH = 28
TOLERANCE = 1e-10
# Of all logits together. The worst one alone says little: in 40 draws of the weights it was off by
# more than a tenth 12 times with tape and once with rope; together they were never off by 0.07.
BFLOAT16_TOLERANCE = 0.1


class DoesNotApply(Exception):
    """The encoding promises nothing of what is checked, and says so: in words, why."""


def decoder_for(name: str, num_layers: int = 3, max_length: int = 4 * TRAINED_LENGTH) -> Decoder:
    """A small decoder in float64, in evaluation, with every parameter moved off its start."""
    setting = Setting(
        num_layers=num_layers,
        num_heads=2,
        head_dim=8,
        hidden_size=16,
        trained_length=TRAINED_LENGTH,
        max_length=max_length,
        digit_ids=DIGITS,
        separator_ids=(PLUS, EQUALS),
        end_id=END,
    )
    config = DecoderConfig(VOCABULARY, num_layers, 16, 2, 8, 24)
    decoder = build_decoder(config, name, setting, seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in decoder.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.3 * noise)
    return decoder


def problem(length: int = 20, rows: int = 3, final_length: int | None = None) -> Sequences:
    """Rows that read as `digits+digits=digits`, each with another key."""
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(DIGITS[0], DIGITS[-1] + 1, (rows, length), generator=generator)
    tokens[:, length // 3], tokens[:, 2 * length // 3] = PLUS, EQUALS
    bound = final_length or min(length + 3, 4 * TRAINED_LENGTH)
    return Sequences(tokens, torch.full((rows,), bound), torch.arange(rows) + 7)


def forward(decoder: Decoder, seqs: Sequences) -> Tensor:
    with torch.no_grad():
        return decoder(seqs)


def with_tokens(seqs: Sequences, tokens: Tensor) -> Sequences:
    return Sequences(tokens, seqs.final_length, seqs.key)


def relative_norm(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def assert_close(ours: Tensor, theirs: Tensor, what: str, tolerance: float = TOLERANCE) -> None:
    error = float((ours - theirs).abs().max() / theirs.abs().max())
    assert error <= tolerance, f"{what}: relative error {error:.1e}, at most {tolerance:.0e}"


def check_builds(name: str) -> None:
    """It is built from a Setting and its options, the others at their defaults, and tells its
    matrix products.

    Usually: an argument after `setting` that is not keyword-only or has no default; options that
    `layer` reads but that are set after super().__init__(setting), which calls it; products of
    something that only another option makes.
    """
    tuple(decoder_for(name).pe.products(Extent(tokens=2, pairs=4, distances=4)))


def check_shape(name: str) -> None:
    """Finite logits of the right shape at four times the trained length.

    Usually: a table of `trained_length` rows (it takes `setting.max_length`), a logarithm of or a
    division by a distance of 0, an exponential of a sum that grows.
    """
    seqs = problem(4 * TRAINED_LENGTH)
    logits = forward(decoder_for(name), seqs)
    assert logits.shape == (*seqs.tokens.shape, VOCABULARY), f"logits of shape {logits.shape}"
    assert bool(logits.isfinite().all()), "logits that are not finite"


def check_causal(name: str) -> None:
    """The last token changes no earlier logit, not by one bit.

    Usually: a sum, a mean or a norm over all tokens; a cumulative sum that runs over keys before
    they are masked; weights of its own that are not masked before the softmax.
    """
    decoder, seqs = decoder_for(name), problem()
    other = seqs.tokens.clone()
    other[:, -1] = END
    before, after = forward(decoder, seqs), forward(decoder, with_tokens(seqs, other))
    changed = (before[:, :-1] != after[:, :-1]).any(-1).any(0).nonzero().flatten().tolist()
    assert not changed, (
        f"another last token, at place {seqs.tokens.shape[1] - 1}, changed the logits of "
        f"{len(changed)} places before it, the first of them place {changed[0]}"
    )
    assert not torch.equal(before[:, -1], after[:, -1]), "the last logits ignore the last token"


def check_order(name: str) -> None:
    """Swapping two neighbouring digits of an operand reaches the logits after '='.

    Usually: a hook with a name that nobody calls; a state from `start` that `attend` does not use;
    positions that are the same for all tokens; a bias so strong that a token sees only itself.
    """
    decoder, seqs = decoder_for(name), problem()
    seqs.tokens[:, 2], seqs.tokens[:, 3] = DIGITS[1], DIGITS[8]
    swapped = seqs.tokens.clone()
    swapped[:, 2], swapped[:, 3] = DIGITS[8], DIGITS[1]
    change = (forward(decoder, seqs) - forward(decoder, with_tokens(seqs, swapped)))[:, -1]
    assert float(change.abs().max()) > 1e-6, "the order of digits does not reach the logits"


def check_no_dead_parameter(name: str) -> None:
    """Every tensor of the encoding and of the decoder moves the logits, but for those that the
    encoding itself calls inert.

    Usually: a module of __init__ whose result is thrown away; a detach() or item() on the way; an
    update in the last layer that nobody reads any more. What cannot act but stands in the paper's
    formula is named in `inert`.
    """
    # The full trained length and beyond, so that what acts only on long distances is reached.
    decoder = decoder_for(name)
    logits = decoder(problem(2 * TRAINED_LENGTH))
    generator = torch.Generator().manual_seed(3)
    target = torch.randn(logits.shape, generator=generator, dtype=logits.dtype)
    (logits * target).sum().backward()
    for path, parameter in decoder.named_parameters():
        moved = parameter.grad is not None and float(parameter.grad.abs().max()) > 1e-9
        inert = path.startswith("pe.") and path.endswith(decoder.pe.inert)
        assert moved or inert, f"{path} gets no gradient"


def check_rows(name: str) -> None:
    """A row's logits do not depend on its neighbours or on padding.

    Usually: a mean, a maximum or a length over the batch or over all T tokens, padding included;
    the bound that each row may know is `seqs.final_length`.
    """
    decoder, seqs = decoder_for(name), problem(rows=3)
    together = forward(decoder, seqs)
    padding = torch.zeros(1, 5, dtype=torch.int64)
    for row in range(3):
        one = slice(row, row + 1)
        tokens = torch.cat((seqs.tokens[one], padding), 1)
        alone = forward(decoder, Sequences(tokens, seqs.final_length[one], seqs.key[one]))
        assert_close(alone[:, :-5], together[one], f"row {row} alone and padded")


def check_deterministic(name: str) -> None:
    """The same call twice, with a longer one between, gives the same bits.

    Usually: torch's own random numbers in a hook (they come from `seqs.key`, by models/philox.py);
    something kept on `self` from one call to the next, which the longer call changed.
    """
    decoder, seqs = decoder_for(name), problem()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(98)
        first = forward(decoder, seqs)
        forward(decoder, problem(4 * TRAINED_LENGTH))
        torch.manual_seed(99)
        assert torch.equal(first, forward(decoder, seqs)), "two identical calls differ"


def check_prefix(name: str) -> None:
    """Logits of a whole row are those of a forward on each prefix: what scoring relies on.

    Usually: a number that depends on how many tokens there are by now: T, `index.max()`, the last
    token. The length that may be known is `seqs.final_length`, from the prompt alone.
    """
    decoder, seqs = decoder_for(name), problem()
    whole = forward(decoder, seqs)
    for length in range(1, seqs.tokens.shape[1]):
        prefix = forward(decoder, with_tokens(seqs, seqs.tokens[:, :length]))
        assert_close(prefix[:, -1], whole[:, length - 1], f"prefix of {length} tokens")


def check_packed(name: str) -> None:
    """Sequences packed end to end, one of them empty, have the logits that each has alone.

    Usually: positions from arange(T) in place of `index`; a cumulative sum, or a distance, across
    `seqs.starts`. What cannot be packed says so: `needs = Needs(packed=False)`.
    """
    decoder, lengths = decoder_for(name), [20, 1, 0, 13]
    if not decoder.pe.needs.packed:
        raise DoesNotApply("its needs say packed=False")
    seqs = problem(rows=len(lengths))
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


def check_bfloat16(name: str) -> None:
    """Autocast and plain bfloat16 weights stay near float64.

    Usually: indices, distances or angles in bfloat16, which beyond 256 skips whole numbers: they
    are computed in float32 at the least and outside autocast, as in models/families.
    """
    exact = forward(decoder_for(name), problem())
    low = decoder_for(name).float()
    with torch.autocast("cpu", torch.bfloat16):
        error = relative_norm(forward(low, problem()).double(), exact)
    assert error <= BFLOAT16_TOLERANCE, f"autocast: relative error {error:.2f} of all logits"
    plain = forward(low.bfloat16(), problem())
    assert bool(plain.isfinite().all()), "logits of bfloat16 weights that are not finite"


CHECKS: tuple[Callable[[str], None], ...] = (
    check_shape,
    check_causal,
    check_order,
    check_no_dead_parameter,
    check_rows,
    check_deterministic,
    check_prefix,
    check_packed,
    check_bfloat16,
)
