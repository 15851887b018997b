"""The machine requirements of a compiled library, and the features of this machine.

A saved library holds its :class:`Target`; :func:`check_target` refuses the library before loading. Instruction sets
missing in the tables below are not recorded: such code ends the process on a processor without the instruction set.
Outside Linux only system and processor family are compared.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from byoc_core.errors import ArtifactError

__all__ = ["Target", "check_target", "features_of_macros", "is_amd", "machine_features", "target_of_macros"]

_X86 = [
    "sse3",
    "ssse3",
    "sse4_1",
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "bmi1",
    "bmi2",
    "popcnt",
    "movbe",
    "avx512f",
    "avx512cd",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512ifma",
    "avx512vbmi",
    "avx512_vbmi2",
    "avx512_vnni",
    "avx512_bitalg",
    "avx512_vpopcntdq",
    "avx512_bf16",
    "avx512_fp16",
    "avx_vnni",
    "gfni",
    "vaes",
    "vpclmulqdq",
]
_SPELT_DIFFERENTLY = {"bmi1": "__BMI__", "avx_vnni": "__AVXVNNI__", "sse3": "__SSE3__"}
# Linux calls SSE3 "pni"; all other names are the macro's name in lower case, except for underscores.
_LINUX_NAMES = {"sse3": "pni"}
_ARM = {
    "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC": "asimdhp",
    "__ARM_FEATURE_DOTPROD": "asimddp",
    "__ARM_FEATURE_MATMUL_INT8": "i8mm",
    "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC": "bf16",
    "__ARM_FEATURE_SVE": "sve",
    "__ARM_FEATURE_SVE2": "sve2",
    "__ARM_FEATURE_ATOMICS": "atomics",
}


def _feature_of_macro() -> dict[str, str]:
    table = dict(_ARM)
    for feature in _X86:
        macro = _SPELT_DIFFERENTLY.get(feature, f"__{feature.upper().replace('AVX512_', 'AVX512')}__")
        table[macro] = _LINUX_NAMES.get(feature, feature)
    return table


@dataclass(frozen=True, slots=True)
class Target:
    """The machines able to run a library.

    Attributes:
        system: operating system, as named by ``platform.system()``.
        machine: processor family, as named by ``platform.machine()``.
        features: instruction sets beyond the family's baseline, under the names of Linux's ``/proc/cpuinfo``, sorted.
    """

    system: str
    machine: str
    features: tuple[str, ...] = ()

    @classmethod
    def local(cls, features: Iterable[str] = ()) -> Target:
        """Return this machine's system and family with the given features."""
        return cls(platform.system(), platform.machine(), tuple(sorted(features)))


def features_of_macros(macros: Iterable[str]) -> tuple[str, ...]:
    """Return the instruction sets enabled in a compiler, from the names of the predefined macros."""
    feature_of_macro = _feature_of_macro()
    return tuple(sorted({feature_of_macro[macro] for macro in macros if macro in feature_of_macro}))


# By predefined macro, under the names of Python's module `platform`; the first defined macro counts.
_SYSTEMS = {"_WIN32": "Windows", "__APPLE__": "Darwin", "__linux__": "Linux"}
_MACHINES = {"__x86_64__": "x86_64", "__aarch64__": "aarch64", "__riscv": "riscv64", "__powerpc64__": "ppc64le"}
_OTHER_NAMES = {
    ("Windows", "x86_64"): "AMD64",
    ("Windows", "aarch64"): "ARM64",
    ("Darwin", "aarch64"): "arm64",
}


def target_of_macros(macros: Iterable[str]) -> Target | None:
    """Return the target machines of a compiler, from the names of the predefined macros.

    The result is ``None`` if the macros indicate no known system or no known processor family.
    """
    names = frozenset(macros)
    system = next((text for macro, text in _SYSTEMS.items() if macro in names), None)
    machine = next((text for macro, text in _MACHINES.items() if macro in names), None)
    if system is None or machine is None:
        return None
    return Target(system, _OTHER_NAMES.get((system, machine), machine), features_of_macros(names))


@cache
def machine_features() -> frozenset[str] | None:
    """Return the instruction sets of this machine, or ``None`` if the system does not list them (other than Linux)."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return None


def is_amd() -> bool:
    """Return whether the processor is of AMD: no other has the instruction set SSE4a."""
    return "sse4a" in (machine_features() or ())


def check_target(target: Target, where: str) -> None:
    """Raise :class:`ArtifactError` unless this machine can run code compiled for ``target``."""
    local = Target.local()
    hint = "Compile the model again on this machine, or for `march` = 'generic'."
    if (target.system, target.machine) != (local.system, local.machine):
        raise ArtifactError(
            where,
            "the native code is for another kind of machine",
            got=f"{target.system} on {target.machine}",
            expected=f"{local.system} on {local.machine}",
            hint=hint,
        )
    available = machine_features()
    missing = [] if available is None else [name for name in target.features if name not in available]
    if missing:
        raise ArtifactError(
            where, f"the native code needs CPU features missing on this machine: {', '.join(missing)}", hint=hint
        )
