"""Names in exported C: the prefix of a model, the functions, the members of its structures, and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from byoc_core.dims import Dim, DimExpr, substitute, symbol
from byoc_core.native.c_text import c_dim, c_identifier, c_real
from byoc_core.vm.program import VMFunction

__all__ = ["FunctionNames", "unique_names"]

_RESERVED = ("workspace", "status", "inputs", "outputs", "pools")


def unique_names(hints: Iterable[str], reserved: Iterable[str] = _RESERVED) -> tuple[str, ...]:
    """Return C identifiers for names, in order; equal identifiers get a number."""
    used = set(reserved)
    found = []
    for hint in hints:
        base = c_identifier(hint)
        name, number = base, 1
        while name in used:
            number += 1
            name = f"{base}_{number}"
        used.add(name)
        found.append(name)
    return tuple(found)


class FunctionNames:
    """The C names of a function.

    Args:
        prefix: the model's name.
        function: the function.
        pools: the names of the pools of the workspace.

    Attributes:
        run: the public function: ``<prefix>_run`` for ``main``, else ``<prefix>_run_<function>``.
        suffix: ``""`` for ``main``, else ``_<function>``; behind the names of structures and size queries.
        inputs: members of the structure of inputs, in order.
        outputs: members of the structure of outputs, in order.
        sizes: members of the structure of inputs for symbolic sizes, by symbol, sorted.
    """

    def __init__(self, prefix: str, function: VMFunction, pools: Sequence[str] = ("workspace",)) -> None:
        self.prefix = prefix
        self.pools = tuple(pools)
        self.suffix = "" if function.name == "main" else f"_{c_identifier(function.name)}"
        self.run = f"{prefix}_run{self.suffix}"
        self.body = f"{prefix}_body{self.suffix}"
        symbols = sorted(function.input_symbols)
        reserved = (*_RESERVED, *pools)
        names = unique_names([*(spec.name for spec in function.params), *symbols], reserved)
        self.inputs = names[: len(function.params)]
        self.sizes: Mapping[str, str] = MappingProxyType(dict(zip(symbols, names[len(function.params) :], strict=True)))
        self.outputs = unique_names((spec.name for spec in function.results), reserved)
        self._symbols: dict[str, Dim] = {name: symbol(member) for name, member in self.sizes.items()}

    def size_variable(self, name: str) -> str:
        """Return the C variable of a symbolic size inside functions."""
        return c_dim(self._symbols[name])

    def size_text(self, dim: Dim) -> str:
        """Return a size as a C expression over the variables of the symbols."""
        return c_dim(dim if isinstance(dim, int) else substitute(dim, self._symbols))

    def size_real(self, dim: DimExpr) -> str:
        """Return a size as a C expression of type ``double``, without overflow."""
        size = substitute(dim, self._symbols)
        return f"{size}.0" if isinstance(size, int) else c_real(size)
