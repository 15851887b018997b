"""Statements and functions of generated C: loops, branches, variables, stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from byoc_core.authoring.c.expressions import Buffer, Expression, PointerArray, Variable
from byoc_core.authoring.c.types import CType
from byoc_core.dims import Dim

__all__ = [
    "Alias",
    "Assign",
    "Block",
    "Clear",
    "Comment",
    "Copy",
    "Declare",
    "Dispatch",
    "Evaluate",
    "Fail",
    "For",
    "Function",
    "If",
    "Let",
    "LocalArray",
    "LoopKind",
    "RawStatement",
    "Return",
    "Statement",
    "Store",
    "While",
]


@dataclass(frozen=True, slots=True)
class Statement:
    """A step of a function's body."""


Block = tuple[Statement, ...]
"""Statements in order. Declared variables and buffers are known until the end of the block."""


@dataclass(frozen=True, slots=True)
class Let(Statement):
    """A declaration of a variable that keeps its first value."""

    variable: Variable
    value: Expression


@dataclass(frozen=True, slots=True)
class Declare(Statement):
    """A declaration of a variable changed by :class:`Assign`."""

    variable: Variable
    value: Expression


@dataclass(frozen=True, slots=True)
class Assign(Statement):
    """A change of a variable declared by :class:`Declare`."""

    variable: Variable
    value: Expression


@dataclass(frozen=True, slots=True)
class LocalArray(Statement):
    """A declaration of an array with a lifetime until the end of the block.

    Attributes:
        buffer: the array; its size is a number. A zeroed array is static if nothing may write to the array.
        is_zeroed: whether the array begins with zeros; else the elements have no value until a store.
        alignment: the alignment in bytes, if the dtype's own is not enough.
        lanes: the elements of a vector, for an array of vectors: ``size`` is a multiple, offsets count elements.
    """

    buffer: Buffer
    is_zeroed: bool = False
    alignment: int | None = None
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Alias(Statement):
    """A declaration of a pointer into a buffer: another buffer.

    Attributes:
        buffer: the new buffer, writable only if the other is. Scratch memory may be split into buffers of other dtypes:
            then the offset has the alignment of the dtype, and no element is read as another dtype.
        source: the buffer pointed into.
        offset: the offset of the new buffer's first element, in elements of the source. If the source is an array of
            pointers and the buffer is not, the number of the pointer.
        condition: if false, the pointer is to ``otherwise``; ``None`` is always true.
        otherwise: another buffer of the source's dtype.
    """

    buffer: Buffer
    source: Buffer
    offset: Expression
    condition: Expression | None = None
    otherwise: Buffer | None = None

    @property
    def sources(self) -> tuple[Buffer, ...]:
        """The possible target buffers of the pointer."""
        return (self.source,) if self.otherwise is None else (self.source, self.otherwise)

    @property
    def reads_pointer(self) -> bool:
        """Whether the alias is loaded from a pointer of an array."""
        return isinstance(self.source, PointerArray) and not isinstance(self.buffer, PointerArray)


@dataclass(frozen=True, slots=True)
class Store(Statement):
    """A write of elements to a buffer: as many as the value has lanes, at any address; or a pointer of an array."""

    buffer: Buffer
    index: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class Copy(Statement):
    """A copy of contiguous elements from one buffer to another, without overlap.

    Attributes:
        target: the buffer written.
        target_index: the offset of the first element written.
        source: the buffer read, of the same dtype.
        source_index: the offset of the first element read.
        count: the number of elements.
    """

    target: Buffer
    target_index: Expression
    source: Buffer
    source_index: Expression
    count: Expression


@dataclass(frozen=True, slots=True)
class Clear(Statement):
    """A fill of contiguous elements with zeros.

    Attributes:
        target: the buffer written.
        index: the offset of the first element.
        count: the number of elements.
    """

    target: Buffer
    index: Expression
    count: Expression


class LoopKind(Enum):
    """The permitted execution of the rounds of a loop.

    Attributes:
        SERIAL: in order.
        PARALLEL: on several threads, in any order: no round reads or writes memory written by another round.
        VECTOR: side by side in vector registers, under the same condition.
        UNROLLED: in order, each written out; the number of rounds is known.
        ROLLED: in order, and never unrolled: a short loop better served by vectors.
    """

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTOR = "vector"
    UNROLLED = "unrolled"
    ROLLED = "rolled"


@dataclass(frozen=True, slots=True)
class For(Statement):
    """A loop running a block for each value of an index.

    Attributes:
        index: the index.
        start: the first value.
        stop: the end, excluded.
        body: the block.
        step: the distance from a value to the next, above 0.
        kind: the permitted execution of the rounds.
        grain: of a parallel loop: parts begin at multiples of this number of rounds.
        round_ps: estimated picoseconds of a round on one thread; ``None`` for an estimate from the body alone.
    """

    index: Variable
    start: Expression
    stop: Expression
    body: Block
    step: int = 1
    kind: LoopKind = LoopKind.SERIAL
    grain: Dim = 1
    round_ps: Dim | None = None


@dataclass(frozen=True, slots=True)
class While(Statement):
    """A loop running a block while a condition holds, tested before each round."""

    condition: Expression
    body: Block


@dataclass(frozen=True, slots=True)
class If(Statement):
    """A branch between two blocks."""

    condition: Expression
    then: Block
    otherwise: Block = ()


@dataclass(frozen=True, slots=True)
class Evaluate(Statement):
    """A call of a function for its effect."""

    call: Expression


@dataclass(frozen=True, slots=True)
class Return(Statement):
    """A return from the function, with a value if the function has a result."""

    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class Fail(Statement):
    """A return with an error for the caller, from a function with a status as result.

    Attributes:
        kind: the name of the exception.
        message: the text, ``place: problem``; ``{}`` stands for the next value.
        values: integers shown in the text.
    """

    kind: str
    message: str
    values: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Comment(Statement):
    """A line for the reader of the C."""

    text: str


@dataclass(frozen=True, slots=True)
class RawStatement(Statement):
    """C text without an equivalent statement: the escape.

    Attributes:
        lines: the text; ``{0}``, ``{1}``, ... stand for the printed reads, ``{w0}``, ``{w1}``, ... for the buffers and
            variables written.
        reads: the expressions read by the text.
        writes: the buffers and variables changed by the text.
        declares: variables and buffers declared by the text; ``{d0}``, ``{d1}``, ... stand for their names.
        evaluate: has the effect of the text, for the interpreter: takes the values of the reads and then the arrays
            written.
    """

    lines: tuple[str, ...]
    reads: tuple[Expression, ...] = ()
    writes: tuple[Buffer | Variable, ...] = ()
    declares: tuple[Buffer | Variable, ...] = ()
    evaluate: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class Dispatch(Statement):
    """A block run for parts of a range of rounds, on several threads: a parallel loop, outlined.

    The block becomes a separate C function. Its parameters are the variables and buffers used from outside.

    Attributes:
        first: the first round of a part.
        end: the end of a part, excluded.
        body: the block; runs the rounds from ``first`` to ``end``.
        count: the number of all rounds.
        grain: parts begin at multiples of this number of rounds.
        work_ps: estimated picoseconds of all rounds on one thread; 0 until computed from the body by :func:`outline`.
    """

    first: Variable
    end: Variable
    body: Block
    count: Dim
    grain: Dim = 1
    work_ps: Dim = 0


@dataclass(frozen=True, slots=True)
class Function:
    """A C function. The symbolic sizes of its body are parameters behind the listed parameters, sorted by name.

    Attributes:
        name: the name in C.
        parameters: buffers and variables, in order.
        body: the block.
        result: the type of the returned value; ``None`` for none.
        comments: lines before the definition.
        is_contracted: whether a product and a following sum may be rounded once together (fused multiply-add).
        is_inline: whether C compilers are asked to inline the body at calls.
    """

    name: str
    parameters: tuple[Buffer | Variable, ...]
    body: Block
    result: CType | None = None
    comments: tuple[str, ...] = ()
    is_contracted: bool = False
    is_inline: bool = False
