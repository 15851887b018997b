"""Generated C for absent processors: instructions are emulated, or shapes belong to other vectors.

gcc compiles the C for the processor, so the machine code is the same as there; a handler of SIGILL computes the missing
instructions. Linux's answer to a request for matrix tiles is a macro of the assembler.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from byoc_core.native.cpu import machine_features
from byoc_core.native.toolchain import find_toolchain

__all__ = ["BYTE_FLAGS", "TILE_FLAGS", "emulate", "need_processor", "tiles_answer"]

TILE_FLAGS = ("-mamx-tile", "-mamx-bf16")
BYTE_FLAGS = ("-mavxvnni",)
_COUNTERS = {TILE_FLAGS: ("count_tile_products", "amx_bf16"), BYTE_FLAGS: ("count_byte_products", "avx_vnni")}
"""By the flags of instructions: their counter, and the features declared for processors with these instructions."""


def need_processor(*features: str) -> None:
    """Skip a test of machine code for processors with these instructions if this processor lacks some."""
    if not (machine_features() or frozenset()).issuperset(features):
        pytest.skip(f"this machine does not run {', '.join(features)}")


def _need_gcc(flags: tuple[str, ...]) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    if find_toolchain().is_zig or "clang" in find_toolchain().version:
        pytest.skip("macros that stand for instructions are those of GCC's assembler")
    completed = subprocess.run(["gcc", *flags, "-E", "-x", "c", "-"], input=b"", capture_output=True, check=False)
    if completed.returncode != 0:
        pytest.skip(f"this gcc knows no {flags[-1]}")


@cache
def _emulation() -> ctypes.CDLL:
    source, library = Path(__file__).with_suffix(".c"), Path(mkdtemp(prefix="byoc-emulation-")) / "emulation.so"
    try:
        flags = ("-O2", "-mfma", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
        subprocess.run(["gcc", *flags, str(source), "-o", str(library), "-lm"], check=True, timeout=120)
        emulation = ctypes.CDLL(str(library))
    finally:
        shutil.rmtree(library.parent)
    for counter, _ in _COUNTERS.values():
        emulation[counter].restype = ctypes.c_int64
    return emulation


@contextmanager
def emulate(flags: tuple[str, ...]) -> Iterator[None]:
    """Emulate the instructions of some gcc flags, on a processor with AVX2; some must be computed."""
    need_processor("avx2", "fma")
    _need_gcc(flags)
    counter, feature = _COUNTERS[flags]
    emulation = _emulation()
    before = emulation[counter]()
    assert emulation.install_emulation() == 0
    try:
        yield
    finally:
        assert emulation.remove_emulation() == 0
    assert emulation[counter]() > before or feature in (machine_features() or ())


def tiles_answer(folder: Path, *, granted: bool) -> tuple[str, ...]:
    """Return flags setting the system's answer to a request for tiles to yes or no, on any machine.

    The file is named after its text: the cache of compiled code uses the flags as keys.
    """
    status = 0 if granted else -1
    text = f'__asm__(".macro syscall\\n\\tmovq ${status}, %rax\\n.endm");\n'
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.h"
    path.write_text(text)
    return ("-include", str(path))
