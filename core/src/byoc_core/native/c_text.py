"""Names and sizes, spelt in C."""

from __future__ import annotations

import re

from byoc_core.dims import Dim, DimExpr
from byoc_core.dtypes import dtype_info

__all__ = [
    "C_TYPES",
    "HALF_DTYPES",
    "c_comment",
    "c_dim",
    "c_identifier",
    "c_real",
    "c_storage_type",
    "c_string",
    "c_symbol",
]

C_TYPES: dict[str, str] = {
    "float32": "float",
    "float64": "double",
    **{f"int{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "bool": "uint8_t",
    "float16": "byoc_f16",
    "bfloat16": "byoc_bf16",
}
"""The C type of every dtype held by generated C; a bool is a byte with value 0 or 1."""

HALF_DTYPES = frozenset({"float16", "bfloat16"})
"""The dtypes that generated C only moves, casts and selects: C structures, without arithmetic."""


def c_storage_type(dtype: str) -> str:
    """Return the C type of a dtype; an unsigned integer for dtypes that generated C only copies."""
    return C_TYPES.get(dtype) or f"uint{8 * dtype_info(dtype).itemsize}_t"


_KEYWORDS = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "_Alignas",
        "_Alignof",
        "_Atomic",
        "_Bool",
        "_Complex",
        "_Generic",
        "_Imaginary",
        "_Noreturn",
        "_Static_assert",
        "_Thread_local",
        "asm",
        "typeof",
        "main",
        "NULL",
        "INFINITY",
        "NAN",
    ]
)


def c_dim(dim: Dim) -> str:
    """Return a size as a C expression over ``int64_t`` variables (:func:`c_symbol`); parenthesised if needed."""
    if isinstance(dim, int):
        return str(dim) if dim >= 0 else f"({dim})"
    terms = []
    for monomial, factor in dim.terms:
        parts = [_c_atom(atom) for atom, exponent in monomial for _ in range(exponent)]
        if factor != 1 or not parts:
            parts.insert(0, c_dim(factor))
        terms.append(" * ".join(parts))
    text = " + ".join(terms)
    return text if text.isidentifier() else f"({text})"


def c_real(dim: DimExpr) -> str:
    """Return the size of :func:`c_dim` as a parenthesised ``double``, for estimates that may overflow ``int64_t``."""
    terms = []
    for monomial, factor in dim.terms:
        # A term is multiplied from the left: with a double as first factor the whole term is a double.
        parts = [_c_atom(atom) for atom, exponent in monomial for _ in range(exponent)]
        terms.append(" * ".join([f"{factor}.0", *parts]))
    return f"({' + '.join(terms)})"


def _c_atom(atom: object) -> str:
    op, name, args = (getattr(atom, field_name) for field_name in ("op", "name", "args"))
    if not op:
        return c_symbol(name)
    return f"byoc_{op}({c_dim(args[0])}, {c_dim(args[1])})"


def c_symbol(name: str) -> str:
    """Return the C variable of a symbolic size: ``dim_<name>``, and different variables for different names.

    Names of other characters than ASCII, or with underscores in front or in a row, are escaped: an underscore becomes
    two, and another character becomes the hexadecimal code point between underscores.
    """
    if name.isascii() and not name.startswith("_") and "__" not in name:
        return f"dim_{name}"
    letters = (c if c.isascii() and c.isalnum() else "__" if c == "_" else f"_{ord(c):x}_" for c in name)
    return f"dim__{''.join(letters)}"


def c_identifier(name: str) -> str:
    """Return a valid C identifier for a name: other characters become ``_``; a leading digit or a keyword gets a ``_``.

    Different names may give the same identifier: the caller makes identifiers unique. Names of the C library are
    accepted: see :data:`byoc_core.authoring.csource_types.C_LIBRARY_NAMES`.
    """
    text = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
    return f"_{text}" if text[0].isdigit() or text in _KEYWORDS else text


def c_comment(text: str) -> str:
    """Return a text for a comment of C: without the marks of comments, trigraphs, line ends and invisible letters."""
    visible = "".join(letter if letter.isprintable() and letter != "\\" else "_" for letter in text)
    return visible.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def c_string(text: str) -> str:
    """Return a C string literal of a text in UTF-8."""
    escaped = []
    for byte in text.encode():
        plain = 0x20 <= byte < 0x7F and chr(byte) not in '"\\?'
        escaped.append(chr(byte) if plain else f"\\{byte:03o}")
    return f'"{"".join(escaped)}"'
