"""Compilers for the vector sets of ``VECTOR_SETS``, and what runs their programs here: this processor, or qemu.

Code for AArch64 is compiled by ``zig cc`` from PyPI, which brings a C library, into programs that need nothing else.
They run under qemu's emulation of a user's process.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from byoc_ccompiler.vector_unit import VECTOR_SETS, VectorSet
from byoc_core.native.cpu import machine_features
from byoc_core.native.toolchain import find_toolchain

__all__ = ["Machine", "machines"]

_QEMU = "qemu-aarch64-static"
_ZIG = ("-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static")


@dataclass(frozen=True)
class Machine:
    """A processor that programs are compiled for and run on.

    Attributes:
        vectors: its vector set.
        compiler: the command that compiles a program, but for the flags of the set.
        emulator: the command that runs a program; empty where this processor runs it.
    """

    vectors: VectorSet
    compiler: tuple[str, ...]
    emulator: tuple[str, ...] = ()

    @property
    def guard(self) -> str:
        """C lines that stop the compiler unless it makes code for the vector set."""
        return f'#if !({self.vectors.predicate})\n#error "this is not {self.vectors.name}"\n#endif\n'


def machines() -> Iterator[Machine]:
    """Yield a machine for each vector set that this processor has, and for those of AArch64.

    Raises:
        RuntimeError: qemu or zig is not there; says where it comes from.
    """
    here = machine_features() or frozenset()
    for vectors in VECTOR_SETS:
        if platform.machine() in vectors.machines:
            if vectors.feature is not None and vectors.feature in {"", *here}:
                yield Machine(vectors, find_toolchain().command)
        elif "aarch64" in vectors.machines:
            qemu = shutil.which(_QEMU)
            if qemu is None:
                raise RuntimeError(f"{_QEMU} is not there. On Debian: apt-get install qemu-user-static.")
            if find_spec("ziglang") is None:
                raise RuntimeError("zig is not there. pip install ziglang.")
            yield Machine(vectors, (sys.executable, *_ZIG), (qemu, "-cpu", _cpu(vectors)))


def _cpu(vectors: VectorSet) -> str:
    """Return the processor that qemu stands for: without SVE for NEON, with registers of the width for SVE."""
    if vectors.name == "neon":
        return "cortex-a57"
    return f"max,sve-default-vector-length={vectors.unit.nbytes}"
