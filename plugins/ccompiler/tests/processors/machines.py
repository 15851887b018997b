"""Compilers for the vector sets of ``VECTOR_SETS``, and runners of the programs: this processor, or qemu.

Code for AArch64 is compiled by ``zig cc`` from PyPI, including a C library, into standalone programs. These run under
qemu's emulation of a user's process.
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
    """A processor targeted by the compiler and running the programs.

    Attributes:
        vectors: the vector set.
        compiler: the command compiling a program, without the flags of the set.
        emulator: the command running a program; empty for this processor.
    """

    vectors: VectorSet
    compiler: tuple[str, ...]
    emulator: tuple[str, ...] = ()

    @property
    def guard(self) -> str:
        """C lines stopping the compiler unless it makes code for the vector set."""
        return f'#if !({self.vectors.predicate})\n#error "this is not {self.vectors.name}"\n#endif\n'


def machines() -> Iterator[Machine]:
    """Yield a machine for each vector set of this processor, and of AArch64.

    Raises:
        RuntimeError: qemu or zig is missing; names the source of the tool.
    """
    features = machine_features() or frozenset()
    for vectors in VECTOR_SETS:
        if platform.machine() in vectors.machines:
            if vectors.feature is not None and vectors.feature in {"", *features}:
                yield Machine(vectors, find_toolchain().command)
        elif "aarch64" in vectors.machines:
            qemu = shutil.which(_QEMU)
            if qemu is None:
                raise RuntimeError(f"{_QEMU} is not there. On Debian: apt-get install qemu-user-static.")
            if find_spec("ziglang") is None:
                raise RuntimeError("zig is not there. pip install ziglang.")
            yield Machine(vectors, (sys.executable, *_ZIG), (qemu, "-cpu", _cpu(vectors)))


def _cpu(vectors: VectorSet) -> str:
    """Return the processor emulated by qemu: without SVE for NEON, with registers of the width for SVE."""
    if vectors.name == "neon":
        return "cortex-a57"
    return f"max,sve-default-vector-length={vectors.unit.nbytes}"
