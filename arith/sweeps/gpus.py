"""Estimate a training on a GPU from steps that were measured there (gpus.toml)."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tape_arith.arith.decoders.cost import training_flops_a_token, training_tokens
from tape_arith.arith.errors import unknown
from tape_arith.arith.registry.names import Encoding, Name
from tape_arith.arith.runs.config import Config
from tape_arith.arith.runs.preset import load_preset

_MEASURED = tomllib.loads(Path(__file__).with_name("gpus.toml").read_text("utf-8"))
_SIZES = ["num_layers", "hidden_size", "num_heads", "head_dim", "mlp_size", "batch_size", "groups"]
_SIZES += ["norm", "loops", "input_injection", "attention_scale"]
"""The settings that make a step another one; lengths and task only make it longer or shorter."""


@dataclass(frozen=True)
class MeasuredGpu:
    """A GPU, and the seconds of a step of `preset` there for each encoding in `steps`."""

    name: str
    preset: str
    steps: Mapping[str, float]

    def seconds_per_flop(self, encoding: Encoding, config: Config) -> float | None:
        """Return the seconds of a FLOP in the measured steps.

        None if this encoding was not measured, or not at the sizes and batch of `config`.
        """
        measured = load_preset(self.preset)
        seconds = self.steps.get(str(encoding))
        if seconds is None or any(getattr(config, k) != getattr(measured, k) for k in _SIZES):
            return None
        tokens = training_tokens(measured) / measured.steps
        return seconds / (training_flops_a_token(Name(encoding), measured) * tokens)


def gpu_names() -> list[str]:
    """List the GPUs that were measured, as `--on` takes them."""
    return list(_MEASURED)


def measured_gpu(name: str) -> MeasuredGpu:
    """Return what was measured on a GPU, as in "h200". Raises UsageError if nothing was."""
    if name.lower() not in _MEASURED:
        raise unknown("measured GPU", name, gpu_names())
    return MeasuredGpu(**_MEASURED[name.lower()])
