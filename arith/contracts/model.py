"""What a model promises that stands in the place of the decoder: `tape-arith check NAME`.

Training and scoring depend on all of it. The model is small and in float32, with noise added to
every parameter.
"""

import torch
from torch import Tensor

from tape_arith.arith.contracts import encoding, examples, gradients
from tape_arith.arith.contracts.promises import Check
from tape_arith.arith.registry.names import Name
from tape_arith.models.decoder import Decoder
from tape_arith.models.sequences import Sequences


def check_builds(name: Name | str) -> None:
    """It is built from a ModelSetting, at any of its sizes, and returns logits [B, T, V].

    Usually: an argument after `setting` that is not keyword-only or has no default; sizes that are
    written into the file; the logits of the last token alone; a tuple of logits and a state.
    """
    examples.forward(examples.decoder_for(name), examples.example_batch())


def check_deterministic(name: Name | str) -> None:
    """The same weights give the same bits, in training too, whatever was called before.

    Usually: dropout, or other random numbers in `forward`; something kept on `self` from one call
    to the next; numbers drawn in __init__ that are no buffer, so that no checkpoint has them.
    """
    encoding.check_deterministic(name)


def check_rows(name: Name | str) -> None:
    """A row's logits do not depend on its neighbours or on padding, in training neither.

    Usually: a mean, a maximum or a norm over the batch or over all T tokens, padding included, as
    of `lengths.max()`, or batch normalization.
    """
    encoding.check_rows(name)


def check_prefix(name: Name | str) -> None:
    """Logits of a whole row are those of a forward on each prefix: what scoring relies on.

    Usually: a number that depends on how many tokens there are, as positions that are divided by
    `lengths`, which may only tell where padding begins.
    """
    encoding.check_prefix(name)


def check_no_dead_parameter(name: Name | str) -> None:
    """Every parameter moves the logits.

    Usually: a module of __init__ whose result is thrown away; a detach() or item() on the way.
    """
    gradients.check_no_dead_parameter(name)


def broken_by(model: Decoder, tokens: Tensor, lengths: Tensor) -> str | None:
    """Say why a finished model cannot be scored on rows of `tokens` [B, T]; None if it can.

    Exact match is scored with the right answer as input, which a model that is not causal copies.
    """
    last, vocabulary = (torch.arange(len(tokens)), lengths - 1), model.config.vocabulary_size
    other = tokens.clone()
    other[last] = (tokens[last] + 1).where(tokens[last] + 1 < vocabulary, 1)
    rows = (tokens, tokens, other)
    first, again, after = (examples.forward(model, Sequences(x, lengths, lengths)) for x in rows)
    if not first.isfinite().all():
        return "its logits are not finite"
    slack = encoding.MODEL_SLACK * first.abs().max()
    if ((first - again).abs() > slack).any():
        return "it gives other logits a second time: turn off dropout, as by eval()"
    earlier = torch.arange(tokens.shape[1]) < last[1][:, None]
    if ((first - after).abs().amax(-1) > slack)[earlier].any():
        return "another last token changes earlier logits: hide later tokens from each place"
    return None


CHECKS: tuple[Check[Name], ...] = (
    check_builds,
    encoding.check_shape,
    check_deterministic,
    encoding.check_causal,
    check_rows,
    check_prefix,
    check_no_dead_parameter,
)
