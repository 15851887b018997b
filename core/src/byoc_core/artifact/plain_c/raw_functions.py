"""Generated functions over plain pointers, as called by exported C: their names, declarations and sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.dims import symbols_of
from byoc_core.native.c_text import c_storage_type
from byoc_core.runtime.csource import CSourceModule

__all__ = ["ENDS", "RawFunctions", "size_symbols"]

ENDS = ("_", "_sizes_")
"""Behind a symbol: the ends of the names of the function over plain pointers, and of the check of its sizes."""


@dataclass(frozen=True)
class RawFunctions:
    """The generated functions called by a C file.

    Attributes:
        renamed: the name of a function in the file, by symbol and end; the symbol with the end if left out.
        tables: the pointers to constants passed to a function as the first argument, as C expressions, by symbol.
    """

    renamed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def name(self, symbol: str) -> str:
        """Return the name of a function over plain pointers."""
        return self._name(symbol, "_")

    def size_check(self, module: CSourceModule, symbol: str) -> str | None:
        """Return the function checking the symbolic sizes of a generated function; ``None`` if there is none."""
        is_defined = f"int32_t {symbol}_sizes_(" in module.get_source("c")
        return self._name(symbol, "_sizes_") if is_defined else None

    def declarations(self, module: CSourceModule, symbol: str) -> Iterator[str]:
        """Yield the declarations of a function over plain pointers, and of the check of its sizes, if any."""
        signature = module.signatures[symbol]
        types = ["const void *const *"] if symbol in self.tables else []
        types += [f"const {c_storage_type(spec.dtype)} *" for spec in signature.inputs]
        types += [f"{c_storage_type(spec.dtype)} *" for spec in signature.outputs]
        sizes = ["int64_t"] * len(size_symbols(module, symbol))
        types += sizes
        types += ["char *"] if module.call_traits(symbol).workspace_nbytes != 0 else []
        yield f"int32_t {self.name(symbol)}({', '.join(types) or 'void'});"
        check = self.size_check(module, symbol)
        if check is not None:
            yield f"int32_t {check}({', '.join(sizes) or 'void'});"

    def _name(self, symbol: str, end: str) -> str:
        return self.renamed.get((symbol, end), f"{symbol}{end}")


def size_symbols(module: CSourceModule, symbol: str) -> list[str]:
    """Return the symbols whose sizes a generated function takes behind the pointers, in order."""
    signature = module.signatures[symbol]
    return sorted(
        {n for spec in (*signature.inputs, *signature.outputs) for dim in spec.shape for n in symbols_of(dim)}
    )
