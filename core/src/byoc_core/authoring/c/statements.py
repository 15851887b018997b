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
"""Statements in order. Variables and buffers that they declare are known until the end of the block."""


@dataclass(frozen=True, slots=True)
class Let(Statement):
    """Declare a variable that keeps its value."""

    variable: Variable
    value: Expression


@dataclass(frozen=True, slots=True)
class Declare(Statement):
    """Declare a variable that :class:`Assign` changes."""

    variable: Variable
    value: Expression


@dataclass(frozen=True, slots=True)
class Assign(Statement):
    """Change a variable that :class:`Declare` declared."""

    variable: Variable
    value: Expression


@dataclass(frozen=True, slots=True)
class LocalArray(Statement):
    """Declare an array that lives until the end of the block.

    Attributes:
        buffer: the array; its size is a number. One that begins with zeros and that nothing may write is static.
        is_zeroed: whether it begins with zeros; else its elements have no value until a store.
        alignment: the alignment in bytes, where the dtype's own is not enough.
        lanes: the elements of a vector, for an array of vectors: ``size`` is a multiple, offsets count elements.
    """

    buffer: Buffer
    is_zeroed: bool = False
    alignment: int | None = None
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Alias(Statement):
    """Declare a pointer into a buffer: another buffer.

    Attributes:
        buffer: the new buffer; it is writable only if the other is. Scratch memory may be split into buffers of other
            dtypes: then the offset is aligned as the dtype asks, and nothing reads an element as another dtype.
        source: the buffer pointed into.
        offset: the offset of its first element, in elements of the source; the number of the pointer, where the source
            is an array of pointers and the buffer is none.
        condition: where it does not hold, the pointer is to ``otherwise``; ``None`` holds always.
        otherwise: another buffer of the source's dtype.
    """

    buffer: Buffer
    source: Buffer
    offset: Expression
    condition: Expression | None = None
    otherwise: Buffer | None = None

    @property
    def sources(self) -> tuple[Buffer, ...]:
        """The buffers that it may point into."""
        return (self.source,) if self.otherwise is None else (self.source, self.otherwise)

    @property
    def reads_pointer(self) -> bool:
        """Whether it points where a pointer of an array does."""
        return isinstance(self.source, PointerArray) and not isinstance(self.buffer, PointerArray)


@dataclass(frozen=True, slots=True)
class Store(Statement):
    """Write elements to a buffer: as many as the value has lanes, at any address; or one pointer of an array."""

    buffer: Buffer
    index: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class Copy(Statement):
    """Copy elements that lie side by side from one buffer to another; the two do not overlap.

    Attributes:
        target: the buffer written.
        target_index: the offset of the first element written.
        source: the buffer read, of the same dtype.
        source_index: the offset of the first element read.
        count: how many elements.
    """

    target: Buffer
    target_index: Expression
    source: Buffer
    source_index: Expression
    count: Expression


@dataclass(frozen=True, slots=True)
class Clear(Statement):
    """Set elements that lie side by side to zero.

    Attributes:
        target: the buffer written.
        index: the offset of the first element.
        count: how many elements.
    """

    target: Buffer
    index: Expression
    count: Expression


class LoopKind(Enum):
    """How the rounds of a loop may run.

    Attributes:
        SERIAL: in order.
        PARALLEL: on several threads, in any order: no round reads or writes what another one writes.
        VECTOR: side by side in vector registers, under the same condition.
        UNROLLED: in order, each written out; the number of rounds is known.
        ROLLED: in order, and never written out: a short loop that vectors serve better.
    """

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTOR = "vector"
    UNROLLED = "unrolled"
    ROLLED = "rolled"


@dataclass(frozen=True, slots=True)
class For(Statement):
    """Run a block for each value of an index.

    Attributes:
        index: the index.
        start: its first value.
        stop: its end, which it does not reach.
        body: the block.
        step: the distance from one value to the next, above 0.
        kind: how the rounds may run.
        grain: of a parallel loop: parts begin at multiples of so many rounds.
        round_ps: estimated picoseconds of a round on one thread; ``None`` where the body alone shall say.
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
    """Run a block as long as a condition holds, which is looked at before each round."""

    condition: Expression
    body: Block


@dataclass(frozen=True, slots=True)
class If(Statement):
    """Run one of two blocks."""

    condition: Expression
    then: Block
    otherwise: Block = ()


@dataclass(frozen=True, slots=True)
class Evaluate(Statement):
    """Call a function for its effect."""

    call: Expression


@dataclass(frozen=True, slots=True)
class Return(Statement):
    """Leave the function, with a value where it has one."""

    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class Fail(Statement):
    """Leave a function that returns a status, with an error that its caller gets.

    Attributes:
        kind: the name of the exception.
        message: the text, ``place: problem``; ``{}`` stands for the next value.
        values: integers that the text shows.
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
    """C text that no other statement can say: the escape.

    Attributes:
        lines: the text; ``{0}``, ``{1}``, ... stand for the printed reads, ``{w0}``, ``{w1}``, ... for the buffers and
            variables written.
        reads: what the text reads.
        writes: what the text changes.
        declares: variables and buffers that the text declares; ``{d0}``, ``{d1}``, ... stand for their names.
        evaluate: does what the text does, for the interpreter: takes the values of the reads and then the arrays
            written.
    """

    lines: tuple[str, ...]
    reads: tuple[Expression, ...] = ()
    writes: tuple[Buffer | Variable, ...] = ()
    declares: tuple[Buffer | Variable, ...] = ()
    evaluate: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class Dispatch(Statement):
    """Run a block for parts of a range of rounds, on several threads: a parallel loop, outlined.

    The block becomes a C function of its own. The variables and buffers from outside that it uses are its parameters.

    Attributes:
        first: the first round of a part.
        end: the end of a part, which it does not reach.
        body: the block; it runs the rounds from ``first`` to ``end``.
        count: the number of all rounds.
        grain: parts begin at multiples of so many rounds.
        work_ps: estimated picoseconds of all rounds on one thread; 0 until :func:`outline` finds it in the body.
    """

    first: Variable
    end: Variable
    body: Block
    count: Dim
    grain: Dim = 1
    work_ps: Dim = 0


@dataclass(frozen=True, slots=True)
class Function:
    """A C function. The symbolic sizes of its body are parameters behind those listed, sorted by name.

    Attributes:
        name: the name in C.
        parameters: buffers and variables, in order.
        body: the block.
        result: the type of the value that it returns; ``None`` for none.
        comments: lines before the definition.
        is_contracted: whether a product and a sum that follows may round once together (fused multiply-add).
        is_inline: whether C compilers are asked to copy the body to where the function is called.
    """

    name: str
    parameters: tuple[Buffer | Variable, ...]
    body: Block
    result: CType | None = None
    comments: tuple[str, ...] = ()
    is_contracted: bool = False
    is_inline: bool = False
