"""The table of kernels in ``rt/csrc/kernel_table.h``: ops, signatures, and dtypes with a kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from byoc_core.dtypes import all_dtypes, complex_dtypes, dtype_info

__all__ = ["KERNELS", "Kernel"]

_FILE = Path(__file__).parents[1] / "csrc" / "kernel_table.h"
_ENTRY = re.compile(r'OP\("(?P<name>[\w.]+)", \w+, [^"]*?(?:"", )?"(?P<signature>[\w*?@=:]*)", (?P<types>[\w| ]+),')
_MOVED = ("float8_e8m0fnu", "float4_e2m1fn")


def _of_kind(*kinds: str) -> frozenset[str]:
    return frozenset(name for name in all_dtypes() if dtype_info(name).kind in kinds and name not in _MOVED)


_SETS: Mapping[str, frozenset[str]] = {
    "RT_BOOLS": _of_kind("bool"),
    "RT_SIGNED": _of_kind("int"),
    "RT_INTEGERS": _of_kind("int", "uint"),
    "RT_FLOATS": _of_kind("float"),
    "RT_NUMBERS": _of_kind("int", "uint", "float"),
    "RT_ALL": _of_kind("int", "uint", "float", "bool"),
    "RT_ANY": frozenset({*all_dtypes(), *complex_dtypes()}),
    "RT_RANDOM_FLOATS": frozenset({"float16", "bfloat16", "float32", "float64"}),
}
_LETTERS = {
    "b": _SETS["RT_BOOLS"],
    "l": frozenset({"int64"}),
    "s": _SETS["RT_SIGNED"],
    "i": _SETS["RT_INTEGERS"],
    "q": _SETS["RT_INTEGERS"],
    "f": _SETS["RT_FLOATS"],
    "?": _SETS["RT_ANY"],
}
"""The dtypes of letters other than T."""


@dataclass(frozen=True)
class Kernel:
    """An entry of the table: the op's name, the letters of operands and results, and the dtypes of the letter T."""

    name: str
    signature: str
    dtypes: frozenset[str]

    def takes(self, dtypes: Sequence[str]) -> bool:
        """Return whether there is a kernel for operands of these dtypes."""
        letters = self.signature.partition(":")[0]
        if letters.endswith("*"):
            letters = letters[:-1].ljust(len(dtypes), letters[-2])
        return all(dtype in _LETTERS.get(letter, self.dtypes) for letter, dtype in zip(letters, dtypes, strict=False))


def _read() -> dict[str, Kernel]:
    found = {}
    for entry in _ENTRY.finditer(_FILE.read_text("utf-8")):
        sets = (_SETS[word] for word in entry["types"].split(" | "))
        found[entry["name"]] = Kernel(entry["name"], entry["signature"], frozenset().union(*sets))
    return found


KERNELS: Mapping[str, Kernel] = _read()
"""The entries by the op's name, in the order of the table."""
