"""Processor, memory and GPU: what there is, what of it this process may use."""

import os
import shutil
from pathlib import Path

import torch

from tape_arith.arith.doctor.finding import Finding, size
from tape_arith.models.compile import cxx
from tape_arith.models.hardware import detect

CGROUPS = Path("/sys/fs/cgroup")
DRIVER = Path("/proc/driver/nvidia/version")
LEAST_MEMORY = 2 * 10**9
"""Bytes: training at mini takes about 1 GB, reading a file of results up to 1.5 GB."""


def machine() -> list[Finding]:
    """Threads, bfloat16, GPU, memory, a compiler."""
    threads = torch.get_num_threads()  # before `detect` leaves torch with one
    hardware = detect()
    if hardware.dtype_name == "bfloat16":
        bf16 = Finding("bfloat16", "ok", f"in hardware ({hardware.name})")
    else:
        bf16 = Finding(
            "bfloat16",
            "slow",
            f"not in hardware ({hardware.name}): products are computed in float32",
            "a processor with AVX512-BF16 or AMX, or a GPU from Ampere on, is faster",
        )
    return [_threads(threads), bf16, _gpu(), _memory(), _compiler(hardware.device)]


def _threads(threads: int) -> Finding:
    cores = usable_cores()
    named = os.environ.get("OMP_NUM_THREADS")
    found = f"{threads} threads for {cores:g} of {os.cpu_count()} cores" + (
        f" (OMP_NUM_THREADS={named})" if named else ""
    )
    right = max(1, int(cores))
    if threads > max(1.0, cores):
        mend = f"OMP_NUM_THREADS={right}: threads that share a core wait for each other"
        return Finding("threads", "slow", found, mend)
    if threads < right:
        mend = f"OMP_NUM_THREADS={right} uses all of them"
        return Finding("threads", "slow", found, mend)
    return Finding("threads", "ok", found)


def usable_cores() -> float:
    """Cores that this process may use: by its affinity, and by the quota of its control group."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    quota, *rest = _words("cpu.max", "cpu/cpu.cfs_quota_us") or ["max"]
    # Version 1 has a file for each.
    period = (rest or _words("cpu/cpu.cfs_period_us") or ["100000"])[0]
    limited = quota.isdecimal() and period.isdecimal() and int(period) > 0
    return min(cores, int(quota) / int(period)) if limited else cores


def _words(*files: str) -> list[str]:
    """What the first of these files of the control group says that is there."""
    for file in files:
        try:
            return (CGROUPS / file).read_text(encoding="ascii").split()
        except OSError:
            continue
    return []


def _gpu() -> Finding:
    driver = _driver()
    if torch.cuda.is_available():
        free, whole = torch.cuda.mem_get_info()
        name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
        found = f"{name}, {size(free)} of {size(whole)} free, capability {capability[0]}."
        found += f"{capability[1]}, CUDA {torch.version.cuda}, driver {driver or '?'}"
        if capability < (8, 0):
            mend = "the fused kernel and bfloat16 want capability 8.0: others are used in its place"
            return Finding("GPU", "slow", found, mend)
        return Finding("GPU", "ok", found)
    if driver is None:
        return Finding("GPU", "missing", "none", "the presets paper-* want one; mini does not")
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        found = f"hidden by CUDA_VISIBLE_DEVICES, driver {driver}"
        return Finding("GPU", "missing", found, "unset CUDA_VISIBLE_DEVICES to use it")
    if torch.version.cuda is None:
        found = f"not used: torch {torch.__version__} is built without CUDA, driver {driver}"
        return Finding("GPU", "slow", found, "install the CUDA build of torch")
    found = f"torch with CUDA {torch.version.cuda} cannot use it, driver {driver}"
    return Finding("GPU", "broken", found, "a newer driver, or torch built for an older CUDA")


def _compiler(device: str) -> Finding:
    """What turns compiled blocks, and on a GPU the fused kernel, into something that runs."""
    # Triton builds what launches its kernels in C, by CC alone where that is set.
    c = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    names = [cxx()] if device == "cpu" else c
    found = next(filter(None, map(shutil.which, names)), None)
    if found is not None:
        return Finding("compiler", "ok", found)
    if device == "cpu":
        mend = "--compile wants one for C++ (g++, or what CXX names); all else does without"
        return Finding("compiler", "missing", f"no {names[0]}", mend)
    mend = "install gcc, or name one in CC; --no-compile --attention sdpa does without, slowly"
    return Finding("compiler", "broken", f"no {' and no '.join(names)}", mend)


def _driver() -> str | None:
    """The version of NVIDIA's driver; None where there is none."""
    try:
        words = DRIVER.read_text(encoding="utf-8").split("\n")[0].split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), "?")


def _memory() -> Finding:
    free, limit = available_memory()
    found = f"{size(free)} available" + (f", {size(limit)} is the limit" if limit else "")
    if free < LEAST_MEMORY:
        mend = f"{size(LEAST_MEMORY)} should be free: end other programs, or raise the limit"
        return Finding("memory", "slow", found, mend)
    return Finding("memory", "ok", found)


def available_memory() -> tuple[int, int | None]:
    """Bytes that this process may still take, and the limit of its control group, if any."""
    limit = (_words("memory.max", "memory/memory.limit_in_bytes") or ["max"])[0]
    used = (_words("memory.current", "memory/memory.usage_in_bytes") or ["0"])[0]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # Version 1 says "no limit" by a number near 2^63.
    if not limit.isdecimal() or int(limit) > 2**60:
        return free, None
    return min(free, int(limit) - int(used if used.isdecimal() else 0)), int(limit)
