"""Sizes of a function in the form used by the C extension: a table, computed by operations from symbols.

The operations are constants of the extension; a new function of :mod:`byoc_core.dims` needs a new operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from byoc_core.dims import Dim, DimExpr, linear_form
from byoc_core.runtime.module import TensorSpec

if TYPE_CHECKING:
    from byoc_core._native import _Operation, _Source

__all__ = ["SizeTable", "symbol_sources"]

_OPERATIONS = {
    "floordiv": "SIZE_FLOORDIV",
    "mod": "SIZE_MOD",
    "max": "SIZE_MAX",
    "min": "SIZE_MIN",
    "broadcast": "SIZE_BROADCAST",
}
_MAX_SIZE = 2**63 - 1


class SizeTable:
    """The size table of a function, during collection.

    Args:
        extension: the module ``byoc_core._native``.
        symbols: symbols with sizes passed to each call; the first entries of the table.

    Attributes:
        symbols: the symbols, in order.
        operations: the operations computing all further sizes.
    """

    def __init__(self, extension: ModuleType, symbols: Iterable[str]) -> None:
        self._native = extension
        self.symbols = tuple(symbols)
        self.operations: list[_Operation] = []
        self._symbol_numbers = {name: number for number, name in enumerate(self.symbols)}
        self._numbers: dict[_Operation, int] = {}
        self._number_by_size: dict[Dim, int] = {}

    def number(self, dim: Dim) -> int:
        """Return the number of a size, adding the size to the table if missing."""
        found = self._number_by_size.get(dim)
        if found is None:
            found = self._number_by_size[dim] = self._constant(dim) if isinstance(dim, int) else self._sum(dim)
        return found

    def numbers(self, dims: Iterable[Dim]) -> tuple[int, ...]:
        """Return the numbers of several sizes."""
        return tuple(map(self.number, dims))

    def _constant(self, value: int) -> int:
        native = self._native
        if abs(value) > _MAX_SIZE:
            return self._add((native.SIZE_UNKNOWN, 0, 0, 0))
        return self._add((native.SIZE_CONSTANT, 0, 0, value))

    def _sum(self, dim: DimExpr) -> int:
        total = None
        for monomial, factor in dim.terms:
            product = None if factor == 1 and monomial else self._constant(factor)
            for atom, exponent in monomial:
                if atom.op:
                    left, right = map(self.number, atom.args)
                    value = self._add((getattr(self._native, _OPERATIONS[atom.op]), left, right, 0))
                else:
                    value = self._symbol_numbers[atom.name]
                for _ in range(exponent):
                    product = value if product is None else self._add((self._native.SIZE_MULTIPLY, product, value, 0))
            assert product is not None
            total = product if total is None else self._add((self._native.SIZE_ADD, total, product, 0))
        assert total is not None
        return total

    def _add(self, operation: _Operation) -> int:
        number = self._numbers.get(operation)
        if number is None:
            number = self._numbers[operation] = len(self.symbols) + len(self.operations)
            self.operations.append(operation)
        return number


def symbol_sources(params: Sequence[TensorSpec], symbols: Sequence[str]) -> tuple[_Source, ...] | None:
    """Return the source of each symbol's size in the inputs: ``(symbol, input, axis, factor, constant)``.

    The symbol's size is the size of the axis, less the constant, over the factor.

    Returns:
        The sources; ``None`` if no single axis determines the size of some symbol.
    """
    found: dict[str, _Source] = {}
    for index, param in enumerate(params):
        for axis, dim in enumerate(param.shape):
            linear = linear_form(dim) if isinstance(dim, DimExpr) else None
            if linear is None or max(map(abs, linear[1:])) > _MAX_SIZE:
                continue
            name, factor, constant = linear
            if name in symbols:
                found.setdefault(name, (symbols.index(name), index, axis, factor, constant))
    return tuple(found.values()) if len(found) == len(symbols) else None
