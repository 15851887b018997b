"""Origins of the dynamic sizes of a module, including sizes unrelated to any input.

The report of a compilation lists the origins under ``sizes``, in the form of :meth:`SizeOrigin.to_data`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from byoc_core.dims import Dim, DimExpr, has_calls, symbols_of
from byoc_core.ir import Binding, Function, IRModule, TensorType, Type

__all__ = ["SizeKind", "SizeOrigin", "SizeTrace", "trace_sizes"]


class SizeKind(Enum):
    """The degree of knowledge about a size."""

    INPUT = "input"
    """A symbol in the shape of an input."""
    EXPRESSION = "expression"
    """A size containing quotients, remainders, extrema or a broadcast: known, but with few provable properties."""
    UNKNOWN = "unknown"
    """A symbol determined by an op at run time, or an unknown rank: not related to any input."""


@dataclass(frozen=True, slots=True)
class SizeOrigin:
    """A size and its first occurrence.

    Attributes:
        function: the function's name.
        size: the size as text; ``?`` for unknown rank.
        kind: the degree of knowledge about the size.
        where: an input and its axis, or an op with its result and source location.
    """

    function: str
    size: str
    kind: SizeKind
    where: str

    def to_data(self) -> dict[str, str]:
        """Return the origin as plain data, for a report."""
        return {"function": self.function, "size": self.size, "kind": self.kind.value, "where": self.where}


@dataclass(frozen=True, slots=True)
class SizeTrace:
    """The dynamic sizes of a module in order of appearance; prints as a table."""

    origins: tuple[SizeOrigin, ...]

    def of_kind(self, kind: SizeKind) -> tuple[SizeOrigin, ...]:
        """Return the sizes of a kind."""
        return tuple(origin for origin in self.origins if origin.kind is kind)

    def __str__(self) -> str:
        rows = [("function", "size", "kind", "where")]
        rows += [(origin.function, origin.size, origin.kind.value, origin.where) for origin in self.origins]
        if len(rows) == 1:
            return "all sizes are known"
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


def trace_sizes(module: IRModule) -> SizeTrace:
    """Return the origin of each dynamic size of a module.

    Cost: linear in ops.
    """
    return SizeTrace(tuple(origin for function in module.functions.values() for origin in _trace(function)))


def _trace(function: Function) -> Iterator[SizeOrigin]:
    symbols: set[str] = set()
    expressions: set[Dim] = set()
    for name, param in zip(function.input_names, function.params, strict=True):
        yield from _unknown_rank(function, param.type, f"input `{name}`")
        for axis, dim in enumerate(_shape(param.type)):
            for symbol in sorted(symbols_of(dim) - symbols):
                yield SizeOrigin(function.name, symbol, SizeKind.INPUT, f"input `{name}`, axis {axis}")
            symbols |= symbols_of(dim)
    for binding in function.walk():
        for result in binding.results:
            location = _location(binding, result.name)
            yield from _unknown_rank(function, result.type, location)
            for axis, dim in enumerate(_shape(result.type)):
                for symbol in sorted(symbols_of(dim) - symbols):
                    yield SizeOrigin(function.name, symbol, SizeKind.UNKNOWN, f"{location}, axis {axis}")
                symbols |= symbols_of(dim)
                if isinstance(dim, DimExpr) and has_calls(dim) and dim not in expressions:
                    expressions.add(dim)
                    yield SizeOrigin(function.name, str(dim), SizeKind.EXPRESSION, f"{location}, axis {axis}")


def _unknown_rank(function: Function, type_: Type, location: str) -> Iterator[SizeOrigin]:
    if isinstance(type_, TensorType) and type_.shape is None:
        yield SizeOrigin(function.name, "?", SizeKind.UNKNOWN, location)


def _shape(type_: Type) -> tuple[Dim, ...]:
    return (type_.shape or ()) if isinstance(type_, TensorType) else ()


def _location(binding: Binding, name: str) -> str:
    source = f" of {binding.location}" if binding.location is not None else ""
    return f"op `{binding.op.name}` (`{name}`){source}"
