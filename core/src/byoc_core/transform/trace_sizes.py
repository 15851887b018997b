"""Where the dynamic sizes of a module come from, and which of them nothing relates to an input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from byoc_core.dims import Dim, DimExpr, has_calls, symbols_of
from byoc_core.ir import Binding, Function, IRModule, TensorType, Type

__all__ = ["SizeKind", "SizeOrigin", "SizeTrace", "trace_sizes"]


class SizeKind(Enum):
    """What is known of a size."""

    INPUT = "input"
    """A symbol that an input has."""
    EXPRESSION = "expression"
    """A size with quotients, remainders, extrema or a broadcast inside: known, but of it little can be proven."""
    UNKNOWN = "unknown"
    """A symbol that an op gives when it runs, or an unknown rank: nothing relates it to an input."""


@dataclass(frozen=True, slots=True)
class SizeOrigin:
    """One size and the first place that has it.

    Attributes:
        function: the function's name.
        size: the size as text; ``?`` where even the rank is unknown.
        kind: what is known of it.
        where: an input and its axis, or an op, its result and where that comes from.
    """

    function: str
    size: str
    kind: SizeKind
    where: str

    def to_data(self) -> dict[str, str]:
        """Gives the origin as plain data, for a report."""
        return {"function": self.function, "size": self.size, "kind": self.kind.value, "where": self.where}


@dataclass(frozen=True, slots=True)
class SizeTrace:
    """The dynamic sizes of a module in order of appearance; prints as a table."""

    origins: tuple[SizeOrigin, ...]

    def of_kind(self, kind: SizeKind) -> tuple[SizeOrigin, ...]:
        """Gives the sizes of which so much is known."""
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
    """Gives where each dynamic size of a module is born.

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
            place = _place(binding, result.name)
            yield from _unknown_rank(function, result.type, place)
            for axis, dim in enumerate(_shape(result.type)):
                for symbol in sorted(symbols_of(dim) - symbols):
                    yield SizeOrigin(function.name, symbol, SizeKind.UNKNOWN, f"{place}, axis {axis}")
                symbols |= symbols_of(dim)
                if isinstance(dim, DimExpr) and has_calls(dim) and dim not in expressions:
                    expressions.add(dim)
                    yield SizeOrigin(function.name, str(dim), SizeKind.EXPRESSION, f"{place}, axis {axis}")


def _unknown_rank(function: Function, type_: Type, place: str) -> Iterator[SizeOrigin]:
    if isinstance(type_, TensorType) and type_.shape is None:
        yield SizeOrigin(function.name, "?", SizeKind.UNKNOWN, place)


def _shape(type_: Type) -> tuple[Dim, ...]:
    return (type_.shape or ()) if isinstance(type_, TensorType) else ()


def _place(binding: Binding, name: str) -> str:
    source = f" of {binding.location}" if binding.location is not None else ""
    return f"op `{binding.op.name}` (`{name}`){source}"
