"""Llama of the library transformers (extra `hub`): a decoder with RoPE that others wrote."""

from torch import Tensor, nn

from tape_arith.models.errors import UsageError
from tape_arith.models.other_model import ModelSetting


class Llama(nn.Module):
    """`transformers.LlamaForCausalLM` at the preset's sizes: our decoder with `rope`, but theirs.

    Activation, epsilon and first weights are those of our decoder.
    """

    paper = "Touvron et al. 2023, arXiv 2302.13971"

    def __init__(self, setting: ModelSetting) -> None:
        super().__init__()
        try:
            from transformers import LlamaConfig, LlamaForCausalLM
        except ImportError as error:
            raise UsageError("llama needs transformers: pip install 'tape-arith[hub]'") from error
        config = LlamaConfig(
            vocab_size=setting.vocabulary_size,
            hidden_size=setting.hidden_size,
            intermediate_size=setting.mlp_size,
            num_hidden_layers=setting.num_layers,
            num_attention_heads=setting.num_heads,
            head_dim=setting.head_dim,
            max_position_embeddings=setting.max_length,
            hidden_act="gelu",
            rms_norm_eps=1e-6,
            initializer_range=0.02,
            tie_word_embeddings=False,
            use_cache=False,
        )
        self.llama = LlamaForCausalLM(config)
        narrower = (2 * setting.num_layers) ** -0.5
        for layer in self.llama.model.layers:
            layer.self_attn.o_proj.weight.data.mul_(narrower)
            layer.mlp.down_proj.weight.data.mul_(narrower)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        logits: Tensor = self.llama(tokens).logits
        return logits
