"""The decoders of other packages that `peers` measures beside ours, each at our sizes."""

import importlib
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

from torch import Tensor, nn

from tape_arith.arith.tasks.vocabulary import SIZE
from tape_arith.arith.training.config import Config

ROOM = 2048
"""The longest sequence that they make room for: nothing is learned of it."""


class Peer(NamedTuple):
    """A package's decoder in one of its settings. `build` takes the package and the sizes;
    `logits` [B, T, V] takes a model, tokens [B, T] and their mask."""

    package: str
    name: str
    build: Callable[[Any, Config], nn.Module]
    logits: Callable[[nn.Module, Tensor, Tensor], Tensor]
    as_it_comes: bool = False


def llama(**settings: object) -> Callable[[Any, Config], nn.Module]:
    """LlamaForCausalLM of our sizes."""

    def build(package: Any, config: Config) -> nn.Module:
        sizes = package.LlamaConfig(
            vocab_size=SIZE,
            hidden_size=config.hidden_size,
            intermediate_size=config.mlp_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_heads,
            head_dim=config.head_dim,
            max_position_embeddings=ROOM,
            tie_word_embeddings=False,
            **settings,
        )
        return package.LlamaForCausalLM(sizes)

    return build


def x_transformer(**settings: object) -> Callable[[Any, Config], nn.Module]:
    """x-transformers' decoder of our sizes, with the parts that ours has."""

    def build(package: Any, config: Config) -> nn.Module:
        layers = package.Decoder(
            dim=config.hidden_size,
            depth=config.num_layers,
            heads=config.num_heads,
            attn_dim_head=config.head_dim,
            verbose=False,
            rotary_pos_emb=True,
            rotary_emb_dim=config.head_dim,
            use_rmsnorm=True,
            ff_glu=True,
            ff_mult=config.mlp_size / config.hidden_size,
            ff_no_bias=True,
            **settings,
        )
        return package.TransformerWrapper(
            num_tokens=SIZE, max_seq_len=ROOM, use_abs_pos_emb=False, attn_layers=layers
        )

    return build


PEERS = (
    Peer(
        "transformers",
        "Llama, sdpa",
        llama(hidden_act="gelu", use_cache=False, attn_implementation="sdpa"),
        lambda model, tokens, mask: model(tokens).logits,
    ),
    Peer(
        "transformers",
        "Llama, eager",
        llama(hidden_act="gelu", use_cache=False, attn_implementation="eager"),
        lambda model, tokens, mask: model(tokens).logits,
    ),
    Peer(
        "transformers",
        "Llama",
        llama(),
        lambda model, tokens, mask: model(tokens, attention_mask=mask.long()).logits,
        as_it_comes=True,
    ),
    Peer(
        "x-transformers",
        "Decoder, attn_flash",
        x_transformer(attn_flash=True),
        lambda model, tokens, mask: model(tokens),
    ),
    Peer(
        "x-transformers",
        "Decoder, no attn_flash",
        x_transformer(attn_flash=False),
        lambda model, tokens, mask: model(tokens),
    ),
    Peer(
        "x-transformers",
        "Decoder",
        x_transformer(),
        lambda model, tokens, mask: model(tokens, mask=mask),
        as_it_comes=True,
    ),
)


def found(package: str) -> tuple[Any, str]:
    """A package and its version. Errors: ImportError where it is not there."""
    return importlib.import_module(package.replace("-", "_")), version(package)
