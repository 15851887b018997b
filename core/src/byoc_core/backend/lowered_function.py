"""Lowered functions: extern calls, copies and loops over buffers, as frozen data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from byoc_core.backend.lowered_buffers import Buffer, BufferPart
from byoc_core.dims import Dim, shape_symbols, symbols_of
from byoc_core.native.toolchain import BuildOptions

if TYPE_CHECKING:
    from byoc_core.ir.module import Function

__all__ = [
    "CValue",
    "Copy",
    "ExternCall",
    "Loop",
    "LoweredFunction",
    "Statement",
    "parts_of",
    "symbols_in",
]


@dataclass(frozen=True, slots=True)
class CValue:
    """A scalar argument of a call, as C.

    Attributes:
        text: a C expression of constants: ``CblasRowMajor``, ``1.0f``.
        ctype: the C type of a parameter for this value.
    """

    text: str
    ctype: str


@dataclass(frozen=True, slots=True)
class ExternCall:
    """A call of a C function.

    Attributes:
        symbol: the C function.
        arguments: parts of buffers (pointers to the first element), sizes (``int64_t``), and other scalars, in the
            order of the parameters.
        returns_status: whether the C function returns an ``int``, 0 for success.
    """

    symbol: str
    arguments: tuple[BufferPart | Dim | CValue, ...]
    returns_status: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of elements between buffers of equal dtype."""

    source: BufferPart
    target: BufferPart


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: the body runs for each value of the index from 0 to the extent, exclusive, in order.

    Attributes:
        index: the name of the symbol standing for the index.
        extent: the number of rounds.
        body: the statements of a round.
    """

    index: str
    extent: Dim
    body: tuple[Statement, ...]


Statement = ExternCall | Copy | Loop


@dataclass(frozen=True, slots=True)
class LoweredFunction:
    """A function as statements over buffers, ready for planning and printing.

    Attributes:
        function: the function before lowering.
        inputs: a buffer for each parameter, in order.
        outputs: a buffer for each result, in order.
        intermediates: buffers in the workspace, in order of allocation.
        statements: the statements, in order.
        declarations: C text placed before the calls: includes, then sources.
        options: the options of compiling and linking the C.
    """

    function: Function
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    intermediates: tuple[Buffer, ...]
    statements: tuple[Statement, ...]
    declarations: tuple[str, ...]
    options: BuildOptions


def parts_of(statement: Statement) -> Iterator[BufferPart]:
    """Yield the accessed parts of a statement, in order; the parts of a loop's body once."""
    match statement:
        case ExternCall(arguments=arguments):
            yield from (argument for argument in arguments if isinstance(argument, BufferPart))
        case Copy(source=source, target=target):
            yield from (source, target)
        case Loop(body=body):
            for inner in body:
                yield from parts_of(inner)


def symbols_in(statement: Statement) -> frozenset[str]:
    """Return the symbols needed for running a statement, without the indexes of its loops."""
    found = shape_symbols(dim for part in parts_of(statement) for dim in (part.offset,))
    match statement:
        case ExternCall(arguments=arguments):
            return found | shape_symbols(item for item in arguments if not isinstance(item, BufferPart | CValue))
        case Copy(source=source):
            return found | symbols_of(source.size)
        case Loop(index=index, extent=extent, body=body):
            inner = frozenset[str]().union(*map(symbols_in, body))
            return (inner | symbols_of(extent)) - {index}
