"""Compute attention in other ways than the reference `attention.Eager`, and choose among them."""

import inspect
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tape_arith.models.attention import Backend, Bias, Eager, Needs, Values, future_mask
from tape_arith.models.errors import UsageError, unknown
from tape_arith.models.hardware import Hardware
from tape_arith.models.kernels import WIDEST
from tape_arith.models.sequences import Sequences

# Of q, k and v [T, H, K], the cumulative lengths int32 [n + 1], the longest and the scale.
PackedKernel = Callable[..., Any]


class SDPA(Backend):
    """torch's kernels, one of its choice, for padded rows, a bias and wider values."""

    name = "sdpa"

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        return "never shows the scores" if needs.bias == "scores" else None

    def attend(
        self, q: Tensor, k: Tensor, values: Values, seqs: Sequences, scale: float, bias: Bias
    ) -> Values:
        assert seqs.starts is None
        batch, tokens, heads = q.shape[:3]
        # All values side by side form one wider value, which one attention map gathers.
        parts = [v.to(q.dtype).expand(batch, tokens, heads, -1) for v in values]
        wide = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
        mask = None
        if bias is not None:
            # torch's kernels want the mask in the type of q. In bfloat16, of 8 bits, neighbouring
            # far distances may get the same bias; Eager adds the bias in float32. CUDA's kernels
            # refuse a mask whose last axis is not contiguous.
            mask = (bias + future_mask(bias)).to(q.dtype).contiguous()
            mask = mask.expand(batch, heads, tokens, tokens)
        # Of CUDA's kernels only this one takes wider values and computes a bias's gradient, but
        # torch prefers cuDNN's. Plain products (MATH) take the widths that it refuses: in bfloat16,
        # those not divisible by 8.
        pinned = q.is_cuda and (bias is not None or wide.shape[-1] != q.shape[-1])
        kernels = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        q, k, wide = (x.transpose(1, 2) for x in (q, k, wide))
        with sdpa_kernel(kernels) if pinned else nullcontext():
            mixed = scaled_dot_product_attention(
                q, k, wide, attn_mask=mask, is_causal=mask is None, scale=scale
            )
        return tuple(mixed.transpose(1, 2).split([v.shape[-1] for v in values], -1))


class Fused(Backend):
    """Our kernel in Triton: gathers up to three values by one attention map, without padding.

    It adds a bias that all sequences share, and computes its gradient.
    """

    name = "fused"
    packs = True

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        on_cpu = hardware.device == "cpu"
        if needs.bias == "scores":
            return "never shows the scores"
        if needs.bias != "none" and not needs.packed:
            return "adds only a bias that all sequences share"
        if needs.values > 3:
            return "gathers three values at most"
        if needs.query * needs.width > WIDEST:
            return f"takes queries of {WIDEST} numbers at most"
        if on_cpu and os.environ.get("TRITON_INTERPRET") != "1":
            return "needs a CUDA GPU (TRITON_INTERPRET=1 runs it on a CPU, slowly)"
        if not on_cpu and torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0):
            return "needs a GPU of compute capability 8.0 or higher"
        # Imported only here, since importing Triton takes a second.
        try:
            from tape_arith.models.kernels.tiles import INTERPRETED
        except ImportError:
            return "needs Triton, which is not installed"
        if on_cpu and not INTERPRETED:
            return "needs TRITON_INTERPRET=1 before its kernels are imported"
        return None

    def attend(
        self, q: Tensor, k: Tensor, values: Values, seqs: Sequences, scale: float, bias: Bias
    ) -> Values:
        from tape_arith.models.kernels.multi_value import multi_value_attention

        batch, tokens, heads = q.shape[:3]
        if bias is not None:
            assert len(bias) == 1
            bias = bias[0].expand(heads, -1, -1)
        # Broadcast here, so that autograd sums the gradient of a value that all heads share.
        flat = [v.expand(batch, -1, -1, -1).flatten(0, 1).expand(-1, heads, -1) for v in values]
        q, k, sequences = q.flatten(0, 1), k.flatten(0, 1), seqs.cumulative
        mixed = multi_value_attention(q, k, flat, *sequences, scale, bias)
        return tuple(heads.unflatten(0, (batch, tokens)) for heads in mixed)


class FlashAttn(Backend):
    """The flash-attn library (version 2), an extra: one call per value, each as wide as a head.

    Where keys take several blocks, atomics sum the gradient of q: its last bits vary from call to
    call. Those of `fused` do not.
    """

    name = "flash-attn"
    packs = True
    #: Why there may be no kernel, as the end of a sentence.
    missing = "is not installed (pip install 'tape-arith[flash]', with torch and nvcc there)"

    def __init__(self) -> None:
        self.kernel = self.load()

    def load(self) -> PackedKernel | None:
        """Import the kernel; return None where it is missing.

        The function itself is imported, since other packages install a namespace `flash_attn`.
        """
        try:
            from flash_attn import flash_attn_varlen_func as varlen
        except ImportError:
            return None
        return lambda q, k, v, starts, longest, scale: varlen(
            q, k, v, starts, starts, longest, longest, softmax_scale=scale, causal=True
        )

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        if self.kernel is None:
            return self.missing
        if hardware.device != "cuda":
            return "needs a CUDA GPU"
        if hardware.dtype_name not in ("bfloat16", "float16"):
            return f"computes in half precision, not in {hardware.dtype_name}"
        if needs.query != 1:
            return "takes queries as wide as the values alone"
        return "adds no bias" if needs.bias != "none" else None

    def attend(
        self, q: Tensor, k: Tensor, values: Values, seqs: Sequences, scale: float, bias: Bias
    ) -> Values:
        kernel = self.kernel
        assert kernel is not None and bias is None
        batch, tokens = q.shape[:2]
        starts, longest = seqs.cumulative

        def gather(value: Tensor) -> Tensor:
            flat = (x.flatten(0, 1) for x in (q, k, value.to(q.dtype).expand_as(q)))
            heads: Tensor = kernel(*flat, starts, longest, scale)
            return heads.unflatten(0, (batch, tokens)).to(value.dtype)

        return tuple(map(gather, values))


class Varlen(FlashAttn):
    """torch's own kernel for packed sequences, which is flash-attn's, for one value."""

    name = "varlen"
    missing = "needs torch 2.11 or newer"

    def load(self) -> PackedKernel | None:
        try:
            from torch.nn.attention.varlen import varlen_attn as varlen
        except ImportError:
            return None
        # That of 2.10 lacks both.
        if not {"scale", "window_size"} <= inspect.signature(varlen).parameters.keys():
            return None
        # A window without an end on the left and with none on the right is the causal mask.
        return lambda q, k, v, starts, longest, scale: varlen(
            q, k, v, starts, starts, longest, longest, scale=scale, window_size=(-1, 0)
        )

    def why_unsupported(self, needs: Needs, hardware: Hardware) -> str | None:
        if (reason := super().why_unsupported(needs, hardware)) is not None:
            return reason
        if needs.values != 1:
            return "gathers one value"
        # Unlike flash-attn, it does not pad others.
        return "takes heads of a multiple of 8 numbers" if needs.width % 8 else None


BACKENDS: dict[str, type[Backend]] = {
    backend.name: backend for backend in (Eager, FlashAttn, Fused, SDPA, Varlen)
}


def known_backend(name: str) -> str:
    """Return `name` if it is "auto" or a backend. Raises UsageError otherwise."""
    if name not in ("auto", *BACKENDS):
        raise unknown("attention backend", name, ("auto", *BACKENDS))
    return name


def load_backend(name: str) -> Backend:
    """Build the backend `name`. Raises UsageError for an unknown name."""
    return BACKENDS[known_backend(name)]()


def _fastest(needs: Needs, hardware: Hardware) -> tuple[str, ...]:
    """List backends, the fastest first; `auto` takes the first that meets the needs.

    Forward and backward in results/bench/h200-paper-20.json (one H200, bfloat16, 16 heads of 64,
    rows of 64, 124 and 244 tokens, about 32,768 in all):

    one value       torch's kernel, in `sdpa`, 0.7, 0.5, 0.6 ms; `fused` 1.0, 1.3, 1.4
    several values  three: `fused` 1.4, 1.4, 1.6 ms; `sdpa` 5.2, 3.8, 4.6
    a bias          `sdpa` 0.7, 1.4, 2.8 ms; `fused` is not measured: it saves the padded groups
    """
    if hardware.device == "cpu":
        return ("eager",)  # plain products are the fastest at these lengths
    if needs.bias != "none":
        return ("fused", "sdpa", "eager")
    if needs.values > 1:
        return ("fused", "flash-attn", "sdpa", "eager")
    return ("varlen", "flash-attn", "fused", "sdpa", "eager")


def choose_backend(request: str, needs: Needs, hardware: Hardware) -> Backend:
    """Choose the backend for an encoding.

    Raises UsageError that names the alternatives if the requested backend does not meet `needs`; it
    never falls back silently.
    """
    names = _fastest(needs, hardware) if request == "auto" else (request,)
    for backend in map(load_backend, names):
        reason = backend.why_unsupported(needs, hardware)
        if reason is None:
            return backend
    able = [name for name in BACKENDS if not load_backend(name).why_unsupported(needs, hardware)]
    raise UsageError(
        f"attention backend '{request}' {reason}; what can do it here: {', '.join(['auto', *able])}"
    )
