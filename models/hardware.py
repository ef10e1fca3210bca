"""Where to compute, and in which precision."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Hardware:
    """A device ("cpu", "cuda") and the type of its fast matrix products: bfloat16 where the
    hardware has it, else float32. Weights, norms, softmax and logits stay in float32."""

    device: str
    dtype: torch.dtype

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device, self.dtype, enabled=self.dtype != torch.float32)

    def exactly(self) -> "Hardware":
        """The same device in float32."""
        return Hardware(self.device, torch.float32)

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def name(self) -> str:
        """The part's own name, where the system tells it."""
        if self.device == "cuda":
            return torch.cuda.get_device_name()
        try:
            with open("/proc/cpuinfo", encoding="utf-8") as file:
                models = [line.split(":", 1)[1].strip() for line in file if "model name" in line]
        except OSError:
            models = []
        return models[0] if models else "CPU"


def detect() -> Hardware:
    """The GPU if there is one, else the CPU; bfloat16 only where products in it are fast."""
    if torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
        return Hardware("cuda", torch.bfloat16 if fast else torch.float32)
    return Hardware("cpu", torch.bfloat16 if _cpu_has_bfloat16() else torch.float32)


def _cpu_has_bfloat16() -> bool:
    # Private names, and not the same ones in every version of torch.
    tests = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, test, lambda: False)() for test in tests)
