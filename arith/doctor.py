"""Check this machine; each check has a result and, where needed, a fix.

Packages are checked even if torch cannot be imported.
Legend: B batch, T tokens, H heads, K head dim.
"""

import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.filesize import decimal

from tape_arith.arith.errors import Failure
from tape_arith.arith.files import atomic
from tape_arith.arith.machine import project, usable_cores

_import_error: Exception | None = None
try:
    import torch
    from torch import Tensor

    from tape_arith.arith.decoders.build import blueprint
    from tape_arith.arith.registry.names import parse
    from tape_arith.arith.runs.preset import load_preset
    from tape_arith.models.attention import Backend, Needs
    from tape_arith.models.backends import BACKENDS, choose_backend, load_backend
    from tape_arith.models.compiling import cxx
    from tape_arith.models.hardware import Hardware, cpu_threads, detect
    from tape_arith.models.sequences import Sequences
except (ImportError, OSError) as error:
    _import_error = error

STATES = ("ok", "slow", "missing", "broken")
"""In this order: it works; works but could be faster; is absent and not required; fails."""
_OPTIONAL = {
    "triton": ("triton", "the fused attention kernel, on a GPU"),
    "flash-attn": ("tape-arith[flash]", "the flash-attn backend, on a GPU"),
    "pyarrow": ("tape-arith[data]", "generate --format parquet"),
    "transformers": ("tape-arith[hub]", "using exported models"),
    "tensorboard": ("tape-arith[tracking]", "following a training in TensorBoard"),
    "wandb": ("tape-arith[tracking]", "following a training in Weights & Biases"),
    "ray": ("tape-arith[ray]", "sweeps on a Ray cluster"),
}
"""For each optional package, what to install with pip and what it is used for."""
_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Check:
    """The result of one check: its state (one of STATES), an observation, and how to fix it."""

    name: str
    state: str
    result: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{self.state:<8} {self.name}: {self.result}"
        return line + (f"\n{'':8} -> {self.fix}" if self.fix else "")


def examine(preset: str | None, runs: Path, data: Path) -> Iterator[Check]:
    """Run all checks. One run of `preset` (None: this machine's default) must fit on the disk of
    the folder `runs`, and its dataset on the disk of the folder `data`."""
    yield from _packages()
    if _import_error is not None:
        reason = " ".join(str(_import_error).split())
        yield Check("machine", "broken", reason, "install torch and tape-arith again")
        return
    hardware = detect()
    yield _threads(cpu_threads())
    if hardware.dtype_name == "bfloat16":
        yield Check("bfloat16", "ok", f"in hardware ({hardware.name})")
    else:
        result = f"not in hardware ({hardware.name}): products are computed in float32"
        fix = "a processor with AVX512-BF16 or AMX, or a GPU from Ampere on, is faster"
        yield Check("bfloat16", "slow", result, fix)
    yield _gpu()
    yield _compiler(hardware.device)
    for name in BACKENDS:
        yield _attention(name, hardware)
    chosen = choose_backend("auto", Needs(packed=False), hardware).name
    yield Check("attention auto", "ok", f"takes {chosen} for RoPE here")
    yield from _disk(preset or ("paper-40" if hardware.device == "cuda" else "mini"), runs, data)


def _packages() -> Iterator[Check]:
    """Check the versions of Python, of required packages and of optional packages."""
    python, packages = _declared()
    fix = f"install Python {python}"
    yield _required("Python", platform.python_version(), SpecifierSet(python), fix)
    for name, specifier in ((each.name, each.specifier) for each in map(Requirement, packages)):
        yield _required(name, _version(name), specifier, f"pip install -U '{name}{specifier}'")
    for name, (extra, use) in _OPTIONAL.items():
        installed = _version(name)
        if installed is None:
            yield Check(name, "missing", f"not installed: {use}", f"pip install '{extra}'")
        else:
            yield Check(name, "ok", f"{installed}: {use}")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _required(name: str, installed: str | None, specifier: SpecifierSet, fix: str) -> Check:
    if installed is not None and specifier.contains(installed, prereleases=True):
        return Check(name, "ok", installed)
    result = f"{installed}, but {specifier} is required" if installed else "not installed"
    return Check(name, "broken", result, fix)


def _declared() -> tuple[str, list[str]]:
    """Return the required Python version and packages, from the source tree if there is one."""
    source = project()
    if source is not None:
        return source["requires-python"], source["dependencies"]
    about = metadata("tape-arith")
    required = [text for text in about.get_all("Requires-Dist") or [] if "extra ==" not in text]
    return str(about["Requires-Python"]), required


def _threads(threads: int) -> Check:
    cores = usable_cores()
    result = f"{threads} threads for {cores:g} of {os.cpu_count()} cores"
    best = max(1, int(cores))
    if threads > max(1.0, cores):
        fix = f"OMP_NUM_THREADS={best}: threads that share a core wait for each other"
    elif threads < best:
        fix = f"OMP_NUM_THREADS={best} uses all of them"
    else:
        return Check("threads", "ok", result)
    return Check("threads", "slow", result, fix)


def _gpu() -> Check:
    driver = None
    with suppress(OSError):
        driver = next(iter(re.findall(r" (\d+\.[\d.]+) ", _DRIVER.read_text("utf-8"))), "?")
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        major, minor = torch.cuda.get_device_capability()
        result = f"{torch.cuda.get_device_name()}, {decimal(free)} of {decimal(total)} free, "
        result += f"capability {major}.{minor}, CUDA {torch.version.cuda}, driver {driver or '?'}"
        if major >= 8:
            return Check("GPU", "ok", result)
        fix = "the fused kernel and bfloat16 need capability 8.0; slower ones are used instead"
        return Check("GPU", "slow", result, fix)
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


def _compiler(device: str) -> Check:
    """Find the compiler that compiled blocks need: C++ on a CPU, C on a GPU (for Triton)."""
    # If CC is set, Triton tries no other compiler.
    names = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    if device == "cpu":
        names = [cxx()]
    path = next(filter(None, map(shutil.which, names)), None)
    if path is not None:
        return Check("compiler", "ok", path)
    if device == "cpu":
        fix = "long trainings are slower without one for C++: install g++, or name one in CXX"
        return Check("compiler", "missing", f"no {names[0]}", fix)
    fix = "install gcc, or name one in CC; --no-compile --backend sdpa works without, slowly"
    return Check("compiler", "broken", f"no {' and no '.join(names)}", fix)


def _attention(backend_name: str, hardware: "Hardware") -> Check:
    """Run an attention backend forward and backward, and compare it with the eager backend."""
    name, fix = f"attention {backend_name}", "choose another with --backend, and report it"
    # Kernels of other packages may raise any exception.
    try:
        backend = load_backend(backend_name)
        reason = backend.why_unsupported(Needs(packed=False), hardware)
        if reason is not None:
            return Check(name, "missing", reason, "other backends are used instead")
        difference = _disagreement(backend, hardware)
    except Exception as error:
        result = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return Check(name, "broken", result, fix)
    if not difference <= (5e-2 if hardware.dtype_name == "bfloat16" else 1e-4):  # true of NaN too
        return Check(name, "broken", f"differs from plain products by {difference:.2g}", fix)
    result = f"forward and backward agree with plain products to {difference:.1g}"
    return Check(name, "ok", f"{result} ({hardware.dtype_name})")


def _disagreement(backend: "Backend", hardware: "Hardware") -> float:
    """Return the largest absolute difference of outputs and gradients from `eager` in float32."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, 32, 2, 64)  # B, T, H, K
    inputs = [torch.randn(shape, generator=generator).to(hardware.device) for _ in range(4)]
    inputs = [x.to(hardware.dtype) for x in inputs]
    lengths = torch.full(shape[:1], shape[1], device=hardware.device)
    ids = torch.zeros(shape[:2], dtype=torch.long, device=hardware.device)
    seqs = Sequences(ids, final_length=lengths, key=lengths)

    def heads_and_gradients(backend: Backend, inputs: list[Tensor]) -> list[Tensor]:
        *leaves, direction = (x.detach().clone().requires_grad_() for x in inputs)
        q, k, v = leaves
        (heads,) = backend(q, k, (v,), seqs)
        return [heads.detach(), *torch.autograd.grad((heads * direction).sum(), leaves)]

    actual = heads_and_gradients(backend, inputs)
    exact = heads_and_gradients(load_backend("eager"), [x.float() for x in inputs])
    return max(float((a.float() - b).abs().max()) for a, b in zip(actual, exact, strict=True))


def _disk(preset: str, runs: Path, data: Path) -> Iterator[Check]:
    """Check that `runs` and `data` can be written and have room for one run of `preset`."""
    config = load_preset(preset)
    weights = 4 * blueprint(config, parse("tape")).num_parameters()
    # A run keeps its final weights and three checkpoints (the two newest, and the one before the
    # cool-down); a checkpoint holds the weights and Adam's two moments.
    run_bytes = weights * (1 + 3 * 3)
    lengths = config.bucket(0).problems(0, 4096).lengths
    data_bytes = int(config.num_problems * (lengths.mean() + 2))
    for option, folder, num_bytes in (
        ("--runs", runs, run_bytes),
        ("--datasets", data, data_bytes),
    ):
        existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
        name, fix = f"writing to {folder}", f"choose another folder with {option}"
        probe = existing / f".doctor-{os.getpid()}"
        try:
            with atomic(probe) as temporary:
                temporary.write_bytes(b"complete")
            yield Check(name, "ok", f"allowed in {existing.resolve()}")
        except Failure as error:
            yield Check(name, "broken", str(error), fix)
        finally:
            with suppress(OSError):
                probe.unlink()
        free = shutil.disk_usage(existing).free
        state = "broken" if free < num_bytes else "ok"
        result = f"{decimal(free)} free, {decimal(num_bytes)} for one run of {preset}"
        yield Check(f"space for {folder}", state, result, fix if state == "broken" else "")
