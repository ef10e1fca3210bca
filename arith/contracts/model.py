"""What a model promises that stands in the place of the decoder: `tape-arith check NAME`.

Training and scoring depend on all of it. The model is small and in float32, with noise added to
every parameter.
"""

from tape_arith.arith.contracts import encoding, examples
from tape_arith.arith.contracts.gradients import check_no_dead_parameter
from tape_arith.arith.contracts.promises import Check
from tape_arith.arith.registry.names import Name


def check_builds(name: Name | str) -> None:
    """It is built from a ModelSetting, at any of its sizes, and returns logits [B, T, V].

    Usually: an argument after `setting` that is not keyword-only or has no default; sizes that are
    written into the file; the logits of the last token alone; a tuple of logits and a state.
    """
    examples.forward(examples.decoder_for(name), examples.example_batch())


def check_prefix(name: Name | str) -> None:
    """Logits of a whole row are those of a forward on each prefix: what scoring relies on.

    Usually: a number that depends on how many tokens there are, as positions that are divided by
    `lengths`, which may only tell where padding begins.
    """
    encoding.check_prefix(name)


CHECKS: tuple[Check[Name], ...] = (
    check_builds,
    encoding.check_shape,
    encoding.check_deterministic,
    encoding.check_causal,
    encoding.check_rows,
    check_prefix,
    check_no_dead_parameter,
)
