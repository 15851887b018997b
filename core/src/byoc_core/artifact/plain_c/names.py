"""Names in exported C: the prefix of a model, the functions, the members of its structures, and sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from byoc_core.dims import Dim, substitute, symbol
from byoc_core.native.c_text import c_dim, c_identifier
from byoc_core.vm.program import VMFunction

__all__ = ["FunctionNames", "all_function_names", "is_free_name", "unique_names"]

_RESERVED = ("workspace", "status", "inputs", "outputs", "pools", "unused", "info")
_SUFFIXES = ("body", "check", "constant", "constants", "input", "inputs", "output", "outputs", "pools", "run", "tensor")
"""Parts of the names of the function ``main``: suffixes of other functions differ."""
_CPP_KEYWORDS = frozenset(
    [
        *("alignas", "alignof", "and", "and_eq", "bitand", "bitor", "bool", "catch", "char16_t", "char32_t", "char8_t"),
        *("class", "co_await", "co_return", "co_yield", "compl", "concept", "const_cast", "consteval", "constexpr"),
        *("constinit", "decltype", "delete", "dynamic_cast", "explicit", "export", "false", "friend", "mutable"),
        *("namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private"),
        *("protected", "public", "reinterpret_cast", "requires", "static_assert", "static_cast", "template", "this"),
        *("thread_local", "throw", "true", "try", "typeid", "typename", "using", "virtual", "wchar_t", "xor", "xor_eq"),
    ]
)
_TAKEN = re.compile(
    r"(u?int(8|16|32|64|ptr|max|_fast\d+|_least\d+)|s?size|ptrdiff|max_align)_t|byoc_\w+|dim_\w+"
    r"|BYOC_\w+|U?INT(8|16|32|64|MAX|PTR|_LEAST\d+|_FAST\d+)_(MIN|MAX|C|WIDTH)"
    r"|(SIZE|PTRDIFF|SIG_ATOMIC|WCHAR|WINT|RAND)_(MIN|MAX)|HUGE_VAL[FL]?|(MATH|FP|SEEK|EXIT|CLOCKS|CLOCK|TIME)_\w+"
    r"|M_(E|PI|LN|LOG|SQRT|[12]_)\w*|L_tmpnam|TMP_MAX|(FOPEN|FILENAME)_MAX|BUFSIZ|EOF|_IO[FLN]BF|MB_CUR_MAX"
    r"|math_errhandling|errno|std(in|out|err)|offsetof|assert|linux|unix|i386|__\w+__"
)
"""Types and macros of the headers included by exported C, macros of compilers, and names of variables."""


def is_free_name(text: str) -> bool:
    """Return whether a C identifier is no type, macro or keyword of C and C++, and no name used by exported C."""
    return text not in _CPP_KEYWORDS and text not in _RESERVED and not _TAKEN.fullmatch(text)


def unique_names(
    hints: Iterable[str], reserved: Iterable[str] = (), is_free: Callable[[str], bool] = is_free_name
) -> tuple[str, ...]:
    """Return C identifiers for names, in order; equal identifiers get a number, reserved identifiers a ``_`` or ``x_``.

    Args:
        hints: the names.
        reserved: further reserved identifiers.
        is_free: whether an identifier is permitted; holds for any identifier beginning with ``x_``.
    """
    used = set(reserved)
    found = []
    for hint in hints:
        base = c_identifier(hint)
        if not is_free(base):
            base = next(name for name in (f"{base}_", f"x_{base}") if is_free(name))
        name, number = base, 1
        while name in used:
            number += 1
            name = f"{base}_{number}"
        used.add(name)
        found.append(name)
    return tuple(found)


def _unique_in_capitals(names: Iterable[str]) -> Iterable[str]:
    """Yield suffixes for names, distinct in capital letters too, for macros."""
    used: set[str] = set()
    for hint in names:
        name, number = hint, 1
        while name.upper() in used:
            number += 1
            name = f"{hint}_{number}"
        used.add(name.upper())
        yield name


class FunctionNames:
    """The C names of a function.

    Args:
        prefix: the model's name.
        function: the function.
        pools: the names of the pools of the workspace.
        name: the function's part of the names, an identifier; by default from the function's name.

    Attributes:
        run: the public function: ``<prefix>_run`` for ``main``, else ``<prefix>_run_<function>``.
        body: the function behind the public function.
        check: the function checking sizes.
        suffix: ``""`` for ``main``, else ``_<function>``; behind the names of structures and size queries.
        inputs: members of the structure of inputs, in order.
        outputs: members of the structure of outputs, in order.
        sizes: members of the structure of inputs for symbolic sizes, by symbol, sorted.
        macros: ends of macros for symbolic sizes, by symbol.
    """

    def __init__(
        self, prefix: str, function: VMFunction, pools: Sequence[str] = ("workspace",), name: str | None = None
    ) -> None:
        self.prefix = prefix
        self.pools = tuple(pools)
        self.suffix = "" if function.name == "main" else f"_{name or c_identifier(function.name)}"
        self.run = f"{prefix}_run{self.suffix}"
        self.body = f"{prefix}_body{self.suffix}"
        self.check = f"{prefix}_check{self.suffix}"
        symbols = sorted(function.input_symbols)
        reserved = {*pools, self.check}
        capitals = f"{prefix.upper()}_"

        def is_free(text: str) -> bool:
            return is_free_name(text) and not text.startswith(capitals)

        names = unique_names([*(spec.name for spec in function.params), *symbols], reserved, is_free)
        self.inputs = names[: len(function.params)]
        self.sizes: Mapping[str, str] = MappingProxyType(dict(zip(symbols, names[len(function.params) :], strict=True)))
        macros = (name.upper() for name in _unique_in_capitals(self.sizes.values()))
        self.macros: Mapping[str, str] = MappingProxyType(dict(zip(symbols, macros, strict=True)))
        self.outputs = unique_names((spec.name for spec in function.results), reserved, is_free)
        self._symbols: dict[str, Dim] = {name: symbol(member) for name, member in self.sizes.items()}

    def size_variable(self, name: str) -> str:
        """Return the C variable of a symbolic size inside functions."""
        return c_dim(self._symbols[name])

    def size_text(self, dim: Dim) -> str:
        """Return a size as a C expression over the variables of the symbols."""
        return c_dim(dim if isinstance(dim, int) else substitute(dim, self._symbols))


def all_function_names(
    prefix: str, functions: Sequence[VMFunction], pools: Sequence[str] = ("workspace",)
) -> dict[str, FunctionNames]:
    """Return the C names of all functions of a model, by name; no two functions share a name or a macro."""
    others = [function for function in functions if function.name != "main"]
    identifiers = unique_names((function.name for function in others), _SUFFIXES, lambda _: True)
    suffixes = dict(zip((f.name for f in others), _unique_in_capitals(identifiers), strict=True))
    return {f.name: FunctionNames(prefix, f, pools, suffixes.get(f.name)) for f in functions}
