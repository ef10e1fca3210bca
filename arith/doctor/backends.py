"""The backends of attention: each run small, forward and backward, beside plain products.

Legend: B batch, T tokens, H heads, K head dim.
"""

import torch
from torch import Tensor

from tape_arith.arith.doctor.finding import Finding
from tape_arith.models.backends import choose, load
from tape_arith.models.backends.backend import Backend, Needs
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.backends import backend_names
from tape_arith.models.sequences import Sequences

ROWS, TOKENS, HEADS, WIDTH = 2, 32, 2, 64
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}


def attention() -> list[Finding]:
    """A finding each, and which one `auto` takes."""
    hardware = detect()
    chosen = choose("auto", Needs(packed=False), hardware).name
    findings = [_backend(name, hardware) for name in backend_names()]
    return [*findings, Finding("attention auto", "ok", f"takes {chosen} for RoPE here")]


def _backend(name: str, hardware: Hardware) -> Finding:
    what = f"attention {name}"
    # Whatever it raises is what there is to tell: other people's kernels fail in their own ways.
    try:
        backend = load(name)
        reason = backend.why_unsupported(Needs(packed=False), hardware)
        if reason is not None:
            return Finding(what, "missing", reason, "others are used in its place")
        difference = disagreement(backend, hardware)
    except Exception as error:
        found = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return Finding(what, "broken", found, "choose another with --attention, and report it")
    if not difference <= TOLERANCE[hardware.dtype]:  # nan too
        found = f"differs from plain products by {difference:.2g}"
        return Finding(what, "broken", found, "choose another with --attention, and report it")
    agree = f"forward and backward agree with plain products to {difference:.1g}"
    return Finding(what, "ok", f"{agree} ({hardware.dtype_name})")


def disagreement(backend: Backend, hardware: Hardware) -> float:
    """The largest difference from `eager` in float32, of heads and of gradients; with a bias too,
    where `backend` adds one."""
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, TOKENS, HEADS, WIDTH)
    drawn = [torch.randn(shape, generator=generator) for _ in range(4)]
    inputs = [x.to(hardware.device, hardware.dtype) for x in drawn]
    # As FIRE's: made for each pair of tokens, heads side by side.
    bias = torch.randn((1, TOKENS, TOKENS, HEADS), generator=generator).to(hardware.device)
    biases: list[Tensor | None] = [None]
    if backend.why_unsupported(Needs(bias="learned", packed=False), hardware) is None:
        biases.append(bias.permute(0, 3, 1, 2))
    ours = [x for bias in biases for x in _gathered(backend, inputs, bias)]
    precise = [x.float() for x in inputs]
    exact = [x for bias in biases for x in _gathered(load("eager"), precise, bias)]
    pairs = zip(ours, exact, strict=True)
    return max(float((a.float() - b).abs().max()) for a, b in pairs)


def _gathered(backend: Backend, inputs: list[Tensor], bias: Tensor | None) -> list[Tensor]:
    """Heads, and the gradients of q, k and v under the last of `inputs`."""
    *leaves, direction = (x.detach().clone().requires_grad_() for x in inputs)
    q, k, v = leaves
    lengths = torch.full((ROWS,), TOKENS, device=q.device)
    tokens = torch.zeros((ROWS, TOKENS), dtype=torch.long, device=q.device)
    seqs = Sequences(tokens, final_length=lengths, key=lengths)
    (heads,) = backend(q, k, (v,), seqs, bias=bias)
    return [heads.detach(), *torch.autograd.grad((heads * direction).sum(), leaves)]
