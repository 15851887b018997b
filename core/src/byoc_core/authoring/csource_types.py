"""byoc's dtypes and values spelt in C, and unique names."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.native.c_text import C_TYPES, HALF_DTYPES, c_dim, c_identifier, c_symbol

__all__ = [
    "COMPUTED_DTYPES",
    "C_LIBRARY_NAMES",
    "C_TYPES",
    "HALF_DTYPES",
    "NameTable",
    "c_dim",
    "c_identifier",
    "c_literal",
    "c_suffix",
    "c_symbol",
    "c_type",
]

COMPUTED_DTYPES = tuple(dtype for dtype in C_TYPES if dtype not in HALF_DTYPES)
"""The dtypes for arithmetic in generated C."""

_MATH = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf"),
    *("exp", "exp2", "expm1", "fabs", "floor", "fma", "fmax", "fmin", "fmod", "hypot", "ldexp", "log", "log10"),
    *("log1p", "log2", "nearbyint", "pow", "rint", "round", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)

C_LIBRARY_NAMES = frozenset(
    {
        *(name for name in C_TYPES.values() if name.endswith("_t")),
        *(f"{name}{suffix}" for name in _MATH for suffix in ("", "f")),
        *(
            f"{sign}INT{kind}_{end}"
            for sign in ("", "U")
            for kind in (8, 16, 32, 64, "MAX", "PTR")
            for end in ("MAX", "MIN")
        ),
        *(f"FP_{kind}" for kind in ("ILOGB0", "ILOGBNAN", "INFINITE", "NAN", "NORMAL", "SUBNORMAL", "ZERO")),
        *("HUGE_VAL", "HUGE_VALF", "HUGE_VALL", "MATH_ERRNO", "MATH_ERREXCEPT", "math_errhandling"),
        *("EXIT_FAILURE", "EXIT_SUCCESS", "MB_CUR_MAX", "RAND_MAX", "WCHAR_MAX", "WCHAR_MIN", "WINT_MAX", "WINT_MIN"),
        *("PTRDIFF_MAX", "PTRDIFF_MIN", "SIG_ATOMIC_MAX", "SIG_ATOMIC_MIN", "SIZE_MAX"),
        *("DLTensor", "abort", "calloc", "free", "malloc", "memcpy", "memmove", "memset", "qsort", "size_t"),
        *("isfinite", "isinf", "isnan", "signbit"),
    }
)
"""Names of the C library used by generated C, and the library's macros: hidden by variables of the same name."""


def c_type(dtype: str) -> str:
    """Return the C type of a dtype (a key of :data:`C_TYPES`)."""
    return C_TYPES[dtype]


def c_suffix(dtype: str) -> str:
    """Return the suffix of the functions in ``byoc_scalar.h``: ``f32``, ``i8``, ``u64``, ``bf16``, ..."""
    family = "bf" if dtype == "bfloat16" else dtype[0]
    return family + dtype.lstrip("abcdefghijklmnopqrstuvwxyz")


def c_literal(value: object, dtype: str, compound: str = "({type}){{{values}}}") -> str:
    """Return a C constant expression of exactly this value.

    Args:
        value: a Python or numpy scalar.
        dtype: the C type's dtype; the value is first converted to this dtype (to infinity if too large).
        compound: the text of a structure value, with ``{type}`` and ``{values}``; C++ has another.
    """
    with np.errstate(over="ignore"):
        scalar = np.asarray(value).astype(to_numpy(dtype))
    if dtype == "bool":
        return "1" if scalar else "0"
    if dtype in HALF_DTYPES:
        return compound.format(type=c_type(dtype), values=f"0x{int(scalar.view(np.uint16)):04x}")
    if scalar.dtype.kind in "iu":
        number = int(scalar)
        if number == -(2**63):
            return "INT64_MIN"
        suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(dtype, "")
        return f"{number}{suffix}" if number >= 0 else f"({number}{suffix})"
    number_f = float(scalar)
    if math.isnan(number_f):
        return f"({c_type(dtype)})NAN"
    if math.isinf(number_f):
        return f"({c_type(dtype)}){'-' if number_f < 0 else ''}INFINITY"
    text = repr(float(number_f)) if dtype == "float64" else f"{np.float32(number_f)!s}"
    if "e" not in text and "." not in text:
        text += ".0"
    text += "f" if dtype == "float32" else ""
    return f"({text})" if text.startswith("-") else text


@dataclass
class NameTable:
    """Names of a C scope, each assigned once.

    Attributes:
        taken: the names in use.
    """

    taken: set[str] = field(default_factory=set)
    _prefixes: tuple[str, ...] = ()

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve names against later assignment."""
        self.taken.update(names)

    def forbid_prefixes(self, *prefixes: str) -> None:
        """Reserve all names with the given prefixes."""
        self._prefixes = (*self._prefixes, *prefixes)

    def unique(self, hint: str) -> str:
        """Return the hint as a C identifier, with a number appended if the identifier is taken."""
        base = c_identifier(hint)
        if base.startswith(self._prefixes):
            base = f"v_{base}"
        name, number = base, 0
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return name
