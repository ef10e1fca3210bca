"""A model of any architecture in the place of the decoder: logits from tokens, nothing else.

Legend: B batch, T tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from tape_arith.models.attention import Needs
from tape_arith.models.decoder import Decoder, DecoderConfig
from tape_arith.models.encoding import PositionalEncoding, Setting
from tape_arith.models.errors import UsageError
from tape_arith.models.sequences import Sequences


@dataclass(frozen=True)
class ModelSetting:
    """The values that a model is built from; they follow from the run's config.

    vocabulary_size             V, the number of tokens and of logits
    trained_length, max_length  tokens of the longest sequences in training and in test
    mlp_size                    M; the decoder's MLP has M gates and M values
    pad_id, end_id              the token that pads rows on the right; the last token of an answer
    """

    vocabulary_size: int
    trained_length: int
    max_length: int
    num_layers: int
    hidden_size: int
    num_heads: int
    head_dim: int
    mlp_size: int
    pad_id: int
    end_id: int


class OtherModel(Decoder):
    """A decoder that asks `model` for its logits, and whose encoding adds nothing.

    `model` is built by `make` from a ModelSetting, with weights of its own. It is called with
    tokens, int64 [B, T], padded on the right, and the number of tokens of each row, int64 [B], and
    returns logits [B, T, V]. Raises UsageError if `config` has variants of our decoder.
    """

    def __init__(
        self, config: DecoderConfig, make: Callable[[ModelSetting], Any], setting: Setting
    ) -> None:
        nn.Module.__init__(self)
        names = [field.name for field in fields(ModelSetting)]
        sizes = {name: value for name, value in vars(config).items() if name in names}
        if config != DecoderConfig(**sizes):
            raise UsageError(
                "norm, loops, input_injection and attention_scale change the decoder, and a model "
                "brings its own: leave them out"
            )
        self.config, self.blocks = config, nn.ModuleList()
        self.pe = PositionalEncoding(setting)
        self.pe.needs = Needs(packed=False)
        values = vars(setting) | sizes
        self.model = make(ModelSetting(**{name: values[name] for name in names}))

    def initialize(self, generator: torch.Generator) -> None:
        """Leave the weights as the model's constructor drew them."""

    def forward(
        self,
        seqs: Sequences,
        chosen: Tensor | None = None,
        blocks: Sequence[Callable[..., Any]] | None = None,
    ) -> Tensor:
        """Return logits as `Decoder.forward`. Raises TypeError if the model returns others."""
        tokens = seqs.tokens
        place = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
        logits = self.model(tokens, (place * (tokens != self.pe.setting.pad_id)).amax(-1))
        expected = [*tokens.shape, self.config.vocabulary_size]
        returned = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if returned != expected:
            raise TypeError(f"forward returned {returned}, not logits [B, T, V] = {expected}")
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return logits if chosen is None else logits.flatten(0, 1).index_select(0, chosen)
