"""Requirements of tests, looked up on this machine or in the environment of this run.

Each question is answered by the machine itself, never by byoc: an answer of byoc must not excuse a test skipped because
of the same answer. The argument of a question is the match of a rule of ``skipped_tests.py``.
"""

from __future__ import annotations

import ctypes.util
import mmap
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

__all__ = [
    "Question",
    "has_attribute",
    "has_c_extension",
    "has_compiler",
    "has_cuda_device",
    "has_distribution",
    "has_environment",
    "has_file",
    "has_flag_of_gcc",
    "has_gcc_for_c",
    "has_instructions",
    "has_instructions_of_onednn",
    "has_interpreter",
    "has_library",
    "has_lockable_memory",
    "has_module",
    "has_nvrtc",
    "has_onednn",
    "has_opencl_processor",
    "has_openmp",
    "has_plain_user",
    "has_plugins",
    "has_processors",
    "has_program",
    "has_sanitizers_of_gcc",
    "has_sanitizers_off",
    "has_system",
    "has_tiles",
    "is_by_design",
]

Question = Callable[[re.Match[str]], bool]

_REQUEST_XCOMP_PERMISSION, _TILE_DATA, _ARCH_PRCTL = 0x1023, 18, 158
_INSTRUCTIONS_OF_ONEDNN = {
    "bfloat16": (("avx512_bf16",),),
    "float16": (("avx512_fp16",),),
    "bytes": (("avx512_vnni",), ("avx_vnni",)),
    "AVX-512": (("avx512f", "avx512bw", "avx512vl", "avx512dq"),),
}
"""Sufficient sets of instructions, by the word of a reason."""
_DISTRIBUTIONS_OF_ONEDNN = ("onednn-cpu-gomp", "onednn-cpu-iomp", "onednn")


def is_by_design(_: re.Match[str]) -> bool:
    """Return ``False``: no machine has the missing part, because the test belongs to another run."""
    return False


# ---- Hardware


@cache
def _flags() -> frozenset[str]:
    """Return the instruction sets of the processor, with Linux's names."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:
        return frozenset()
    lines = (line.partition(":") for line in text.splitlines())
    return frozenset(word for key, _, value in lines if key.strip() in ("flags", "Features") for word in value.split())


def has_instructions(match: re.Match[str]) -> bool:
    """Return whether the processor has all instruction sets named by a reason; with Linux's names."""
    return set(match[1].split(", ")) <= _flags()


def has_instructions_of_onednn(match: re.Match[str]) -> bool:
    """Return whether oneDNN finds the instructions named by a reason, and is not restricted to fewer."""
    sets = _INSTRUCTIONS_OF_ONEDNN[match[1]]
    return "ONEDNN_MAX_CPU_ISA" not in os.environ and any(set(names) <= _flags() for names in sets)


def has_tiles(_: re.Match[str]) -> bool:
    """Return whether the processor has tiles and the system lets this process use them."""
    if not {"amx_bf16", "amx_tile"} <= _flags():
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_XCOMP_PERMISSION, _TILE_DATA) == 0)


def has_processors(_: re.Match[str]) -> bool:
    """Return whether this process may use more than one processor."""
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1


def has_cuda_device(_: re.Match[str]) -> bool:
    """Return whether the system has a driver of CUDA, and the driver finds a device."""
    try:
        driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    except OSError:
        return False
    return bool(driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0)


def has_system(*systems: str, machine: str = "") -> Question:
    """Return whether the system is one of these, by ``sys.platform``, and the processor of this family."""
    return lambda _: sys.platform in systems and machine in ("", platform.machine())


# ---- Libraries and distributions


def has_module(match: re.Match[str]) -> bool:
    """Return whether the package named by a reason is installed."""
    return find_spec(match[1].partition(".")[0]) is not None


def has_distribution(match: re.Match[str]) -> bool:
    """Return whether a backend of this name is installed."""
    return match[1] in _backends()


def has_plugins(_: re.Match[str]) -> bool:
    """Return whether any backend but the host is installed."""
    return bool(_backends() - {"host"})


def _backends() -> set[str]:
    return {entry.name for entry in metadata.entry_points(group="byoc.backends")}


def has_library(name: str) -> Question:
    """Return whether the system's loader finds a library."""
    return lambda _: ctypes.util.find_library(name) is not None


def has_onednn(_: re.Match[str]) -> bool:
    """Return whether oneDNN is installed."""
    found = {_normalised(distribution.name) for distribution in metadata.distributions()}
    return bool(found & set(_DISTRIBUTIONS_OF_ONEDNN)) or ctypes.util.find_library("dnnl") is not None


def has_distribution_of_openblas(_: re.Match[str]) -> bool:
    """Return whether OpenBLAS is installed by its distribution."""
    return "scipy-openblas32" in {_normalised(distribution.name) for distribution in metadata.distributions()}


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def has_openmp(match: re.Match[str]) -> bool:
    """Return whether oneDNN is installed with the library of oneDNN's threads."""
    return has_onednn(match) and ctypes.util.find_library("gomp") is not None


# ---- Compilers and what they make


def _compiler_for_c() -> list[str]:
    """Return the command compiling C: the requested compiler, else the first compiler found."""
    for variable in ("BYOC_CC", "CC"):
        command = shlex.split(os.environ.get(variable, ""))
        if command:
            return command if shutil.which(command[0]) else []
    return next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), [])


def has_compiler(_: re.Match[str]) -> bool:
    """Return whether C can be compiled."""
    return bool(_compiler_for_c())


def has_nvrtc(_: re.Match[str]) -> bool:
    """Return whether NVIDIA's compiler at run time is installed, as a package or on the path of the system's loader."""
    names = {_normalised(distribution.name) for distribution in metadata.distributions()}
    return any(name.startswith("nvidia-cuda-nvrtc") for name in names) or ctypes.util.find_library("nvrtc") is not None


def has_opencl_processor(_: re.Match[str]) -> bool:
    """Return whether the system, or the variable of OpenCL's loader, names PoCL: the processor as a device.

    Other drivers may be installed without a device.
    """
    folder = Path(os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors"))
    return "pocl" in folder.name if folder.is_file() else any(folder.glob("*pocl*.icd"))


def has_program(match: re.Match[str]) -> bool:
    """Return whether the program named by a reason is on the search path."""
    return shutil.which(match[1]) is not None


def has_gcc_for_c(_: re.Match[str]) -> bool:
    """Return whether the compiler for C is GCC."""
    command = _compiler_for_c()
    if not command:
        return False
    process = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return "Free Software Foundation" in process.stdout


def has_flag_of_gcc(match: re.Match[str]) -> bool:
    """Return whether gcc accepts the flag named by a reason."""
    if shutil.which("gcc") is None:
        return False
    command = ["gcc", match[1], "-E", "-x", "c", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def has_sanitizers_of_gcc(_: re.Match[str]) -> bool:
    """Return whether gcc has the library of AddressSanitizer."""
    if shutil.which("gcc") is None:
        return False
    command = ["gcc", "-print-file-name=libasan.so"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    return Path(process.stdout.strip()).is_absolute()


def has_sanitizers_off(_: re.Match[str]) -> bool:
    """Return whether C is compiled without sanitizers."""
    return not any("-fsanitize" in word for word in _compiler_for_c())


def has_c_extension(match: re.Match[str]) -> bool:
    """Return whether the core's C extension is installed, or could have been built here."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    is_built = find_spec("byoc_core") is not None and find_spec("byoc_core._native") is not None
    return is_built or (has_compiler(match) and headers.is_file())


def has_interpreter(match: re.Match[str]) -> bool:
    """Return whether the search path has the Python named by a reason."""
    found = shutil.which(f"python{match[1]}")
    return found is not None and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0


# ---- The system


def has_attribute(*modules_and_names: tuple[object, str]) -> Question:
    """Return whether Python offers functions of the system here: pairs of a module and a name."""
    return lambda _: all(hasattr(module, name) for module, name in modules_and_names)


def has_file(path: str, text: str = "") -> Question:
    """Return whether a file of the system exists and contains a text."""
    return lambda _: Path(path).is_file() and text in Path(path).read_text("utf-8", errors="replace")


def has_environment(variable: str, value: str = "", *, is_negated: bool = False) -> Question:
    """Return whether an environment variable begins with a value; with ``is_negated``, the opposite."""
    return lambda _: (variable in os.environ and os.environ[variable].startswith(value)) != is_negated


def has_plain_user(_: re.Match[str]) -> bool:
    """Return whether the system denies this user files without read permission."""
    return hasattr(os, "geteuid") and os.geteuid() != 0


def has_lockable_memory(_: re.Match[str]) -> bool:
    """Return whether this process may lock a page of memory."""
    page = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    libc = ctypes.CDLL(None)
    status = libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE))
    libc.munlock(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE))
    return bool(status == 0)


FORK, AFFINITY, PIPES, TIMER, PAGES = (
    has_attribute((os, "fork")),
    has_attribute((os, "sched_getaffinity")),
    has_attribute((os, "mkfifo")),
    has_attribute((signal, "setitimer")),
    has_attribute((mmap, "MADV_DONTNEED")),
)
