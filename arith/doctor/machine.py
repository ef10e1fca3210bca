"""Checks of the device and what it supports, of attention kernels, and of the disk.

Legend: B batch, T tokens, H heads, K head dim.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch
from rich.filesize import decimal
from torch import Tensor

from tape_arith.arith.data.bucket import Bucket
from tape_arith.arith.doctor.doctor import Check
from tape_arith.arith.errors import Failure
from tape_arith.arith.files import atomic
from tape_arith.arith.machine import usable_cores
from tape_arith.arith.runs.build import blueprint
from tape_arith.arith.runs.record import load_preset
from tape_arith.models.attention import Backend, Needs
from tape_arith.models.backends import BACKENDS, choose, load
from tape_arith.models.compile import cxx
from tape_arith.models.hardware import Hardware, detect
from tape_arith.models.names.parse import parse
from tape_arith.models.sequences import Sequences

_DRIVER = Path("/proc/driver/nvidia/version")
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}


def device() -> Iterator[Check]:
    """Check threads, bfloat16, GPU and compiler."""
    threads = torch.get_num_threads()  # before `detect` leaves torch with one
    hardware = detect()
    yield _threads(threads)
    if hardware.dtype_name == "bfloat16":
        yield Check("bfloat16", "ok", f"in hardware ({hardware.name})")
    else:
        result = f"not in hardware ({hardware.name}): products are computed in float32"
        fix = "a processor with AVX512-BF16 or AMX, or a GPU from Ampere on, is faster"
        yield Check("bfloat16", "slow", result, fix)
    yield _gpu()
    yield _compiler(hardware.device)


def _threads(threads: int) -> Check:
    cores = usable_cores()
    result = f"{threads} threads for {cores:g} of {os.cpu_count()} cores"
    if "OMP_NUM_THREADS" in os.environ:
        result += f" (OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']})"
    best = max(1, int(cores))
    if threads > max(1.0, cores):
        fix = f"OMP_NUM_THREADS={best}: threads that share a core wait for each other"
        return Check("threads", "slow", result, fix)
    if threads < best:
        return Check("threads", "slow", result, f"OMP_NUM_THREADS={best} uses all of them")
    return Check("threads", "ok", result)


def _gpu() -> Check:
    driver = _driver()
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        major, minor = torch.cuda.get_device_capability()
        result = f"{torch.cuda.get_device_name()}, {decimal(free)} of {decimal(total)} free, "
        result += f"capability {major}.{minor}, CUDA {torch.version.cuda}, driver {driver or '?'}"
        if major < 8:
            fix = "the fused kernel and bfloat16 need capability 8.0; slower ones are used instead"
            return Check("GPU", "slow", result, fix)
        return Check("GPU", "ok", result)
    if driver is None:
        return Check("GPU", "missing", "none", "the presets paper-* need one; mini does not")
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        result = f"hidden by CUDA_VISIBLE_DEVICES, driver {driver}"
        return Check("GPU", "missing", result, "unset CUDA_VISIBLE_DEVICES to use it")
    if torch.version.cuda is None:
        result = f"not used: torch {torch.__version__} is built without CUDA, driver {driver}"
        return Check("GPU", "slow", result, "install the CUDA build of torch")
    result = f"torch with CUDA {torch.version.cuda} cannot use it, driver {driver}"
    return Check("GPU", "broken", result, "a newer driver, or torch built for an older CUDA")


def _driver() -> str | None:
    """Return the version of NVIDIA's driver; None without one."""
    try:
        words = _DRIVER.read_text(encoding="utf-8").split("\n")[0].split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), "?")


def _compiler(device: str) -> Check:
    """Check for the C++ compiler of compiled blocks on a CPU, the C compiler of Triton on a GPU."""
    # Triton uses CC alone where that is set.
    names = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    if device == "cpu":
        names = [cxx()]
    path = next(filter(None, map(shutil.which, names)), None)
    if path is not None:
        return Check("compiler", "ok", path)
    if device == "cpu":
        fix = "only --compile needs one for C++: install g++, or name one in CXX"
        return Check("compiler", "missing", f"no {names[0]}", fix)
    fix = "install gcc, or name one in CC; --no-compile --attention sdpa works without, slowly"
    return Check("compiler", "broken", f"no {' and no '.join(names)}", fix)


def attention() -> Iterator[Check]:
    """Run each backend of attention, forward and backward, and compare it with plain products."""
    hardware = detect()
    for name in BACKENDS:
        yield _backend(name, hardware)
    chosen = choose("auto", Needs(packed=False), hardware).name
    yield Check("attention auto", "ok", f"takes {chosen} for RoPE here")


def _backend(backend_name: str, hardware: Hardware) -> Check:
    name, fix = f"attention {backend_name}", "choose another with --attention, and report it"
    # Kernels of other packages fail with exceptions of any kind.
    try:
        backend = load(backend_name)
        reason = backend.why_unsupported(Needs(packed=False), hardware)
        if reason is not None:
            return Check(name, "missing", reason, "other backends are used instead")
        difference = _disagreement(backend, hardware)
    except Exception as error:
        result = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return Check(name, "broken", result, fix)
    if not difference <= _TOLERANCE[hardware.dtype]:  # nan too
        return Check(name, "broken", f"differs from plain products by {difference:.2g}", fix)
    result = f"forward and backward agree with plain products to {difference:.1g}"
    return Check(name, "ok", f"{result} ({hardware.dtype_name})")


def _disagreement(backend: Backend, hardware: Hardware) -> float:
    """Return the largest difference of heads and gradients from `eager` in float32."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, 32, 2, 64)  # B, T, H, K
    inputs = [torch.randn(shape, generator=generator).to(hardware.device) for _ in range(4)]
    inputs = [x.to(hardware.dtype) for x in inputs]
    # Laid out like FIRE's: made for each pair of tokens, heads last.
    bias = torch.randn((1, 32, 32, 2), generator=generator).to(hardware.device)
    biases: list[Tensor | None] = [None]
    if backend.why_unsupported(Needs(bias="learned", packed=False), hardware) is None:
        biases.append(bias.permute(0, 3, 1, 2))
    precise = [x.float() for x in inputs]
    return max(
        float((actual.float() - exact).abs().max())
        for bias in biases
        for actual, exact in zip(
            _heads_and_gradients(backend, inputs, bias),
            _heads_and_gradients(load("eager"), precise, bias),
            strict=True,
        )
    )


def _heads_and_gradients(
    backend: Backend, inputs: list[Tensor], bias: Tensor | None
) -> list[Tensor]:
    """Return heads, and the gradients of q, k and v along the last of `inputs`."""
    *leaves, direction = (x.detach().clone().requires_grad_() for x in inputs)
    q, k, v = leaves
    rows, tokens = q.shape[:2]
    lengths = torch.full((rows,), tokens, device=q.device)
    ids = torch.zeros((rows, tokens), dtype=torch.long, device=q.device)
    (heads,) = backend(q, k, (v,), Sequences(ids, final_length=lengths, key=lengths), bias=bias)
    return [heads.detach(), *torch.autograd.grad((heads * direction).sum(), leaves)]


def disk(preset: str | None, runs: Path, data: Path) -> Iterator[Check]:
    """Check that the folders of runs and datasets can be written and have space."""
    preset = preset or ("paper-40" if detect().device == "cuda" else "mini")
    for folder, num_bytes in zip((runs, data), _bytes_needed(preset), strict=True):
        existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
        yield _writing(folder, existing)
        free = shutil.disk_usage(existing).free
        name = f"space for {folder}"
        result = f"{decimal(free)} free, {decimal(num_bytes)} for one run of {preset}"
        if free < num_bytes:
            fix = "free some, or choose another folder with --out"
            yield Check(name, "broken", result, fix)
        else:
            yield Check(name, "ok", result)


def _bytes_needed(preset: str) -> tuple[int, int]:
    """Estimate the bytes of one run while it trains, and of its dataset if it is written."""
    config = load_preset(preset)
    weights = 4 * blueprint(config, parse("tape")).num_parameters()
    lengths = Bucket(config.task, config.trained_digits, 0, "train").problems(0, 4096).lengths
    # The final weights; and with Adam's two moments, three checkpoints: the two newest, and the one
    # from before the cool-down.
    return weights * (1 + 3 * 3), int(config.num_problems * (lengths.mean() + 2))


def _writing(folder: Path, existing: Path) -> Check:
    name = f"writing to {folder}"
    probe = existing / f".doctor-{os.getpid()}"
    try:
        with atomic(probe) as temporary:
            temporary.write_bytes(b"whole")
    except Failure as error:
        return Check(name, "broken", str(error), "choose another folder with --out")
    finally:
        with suppress(OSError):
            probe.unlink()
    return Check(name, "ok", f"allowed in {existing.resolve()}")
