"""Mapping of functions to grids: parallel loops become kernels, launched in order by a host as in CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from byoc_core.authoring.c.aliasing import Aliases
from byoc_core.authoring.c.estimate import rounds_of
from byoc_core.authoring.c.expressions import (
    Address,
    Buffer,
    Call,
    Expression,
    Literal,
    Load,
    PointerArray,
    Raw,
    Size,
    Variable,
)
from byoc_core.authoring.c.loops import smaller
from byoc_core.authoring.c.outline import is_parallel, serialise
from byoc_core.authoring.c.scalarise import scalarise
from byoc_core.authoring.c.statements import (
    Alias,
    Block,
    Clear,
    Comment,
    Copy,
    Dispatch,
    Fail,
    For,
    Function,
    Let,
    LocalArray,
    LoopKind,
    RawStatement,
    Return,
    Statement,
    Store,
)
from byoc_core.authoring.c.traversal import (
    buffers_written,
    expressions_in,
    free_in,
    map_block,
    statements_in,
)
from byoc_core.authoring.c.types import CType
from byoc_core.authoring.c.unused import drop_unused
from byoc_core.dims import Dim, ceildiv
from byoc_core.errors import InternalError

__all__ = ["Grid", "Launch", "map_to_grid"]


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of a kernel; arguments are the kernel's parameters and then the sizes of the body, by name.

    Attributes:
        kernel: values read by all rounds, and a single parallel loop.
        rounds: the rounds of the loop, or an estimate if the bounds are no sizes. Any number of threads runs all
            rounds.
    """

    kernel: Function
    rounds: Dim


@dataclass(frozen=True, slots=True)
class Grid:
    """A function as launches, run in order by a host; each launch sees the memory left by the previous launch.

    Attributes:
        launches: the launches.
        scratch: buffers allocated by the host: the local arrays of the function outside its loops.
    """

    launches: tuple[Launch, ...]
    scratch: tuple[Buffer, ...]


def map_to_grid(function: Function) -> Grid:
    """Return the launches equivalent to a function.

    Each parallel loop is a kernel. Values and pointers declared outside a loop are computed again in each kernel that
    uses them. Statements between parallel loops are kernels with a single round. Vectors are scalarised.

    Raises:
        InternalError: a grid cannot run the function: a parallel loop stands inside another statement, a loop reads a
            value that a launch may change, or the function has a result or contains C text.
    """
    return _Mapper(function).grid()


class _Mapper:
    """A mapper of a function, with the statements since the last launch and the repeatable declarations."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._where = f"C function `{function.name}`"
        self._aliases = Aliases(function.body)
        self._written = buffers_written(function.body)
        self._has_loops = any(_parallel_loop(item) is not None for item in function.body)
        self._declarations: Block = ()
        self._pending: Block = ()
        self._launches: list[Launch] = []
        self._scratch: list[Buffer] = []

    def grid(self) -> Grid:
        if self._function.result is not None:
            raise InternalError(
                self._where, "returns a value, but kernels return nothing", got=str(self._function.result)
            )
        for statement in self._function.body:
            self._add(statement)
        self._launch_pending()
        return Grid(tuple(self._launches), tuple(self._scratch))

    def _add(self, statement: Statement) -> None:
        if isinstance(statement, LocalArray) and statement.buffer.is_writable and self._has_loops:
            buffer, size = statement.buffer, statement.buffer.size
            assert size is not None
            if isinstance(buffer, PointerArray):
                raise InternalError(self._where, f"has pointers in `{buffer.name}` outside the parallel loops")
            self._scratch.append(buffer)
            statement = Clear(buffer, Size(0), Size(size)) if statement.is_zeroed else Comment("scratch memory")
        loop = _parallel_loop(statement)
        if loop is not None:
            self._launch_pending()
            self._launch(loop, self._declarations)
        elif any(map(is_parallel, statements_in((statement,)))):
            got = type(statement).__name__
            raise InternalError(self._where, "has a parallel loop inside another statement", got=got)
        elif not isinstance(statement, Comment):
            self._pending += (statement,)

    def _launch_pending(self) -> None:
        """Add a kernel with a single round for the statements since the last launch, if these have an effect."""
        declarations, block = self._declarations, self._pending
        self._declarations += tuple(item for item in block if self._may_be_repeated(item))
        self._pending = ()
        if not all(isinstance(item, Let | Alias | LocalArray) for item in block):
            once = For(Variable("once"), Size(0), Size(1), (), kind=LoopKind.PARALLEL)
            self._launch(replace(once, body=drop_unused(block)), declarations)

    def _launch(self, loop: For, declarations: Block) -> None:
        body = drop_unused((*declarations, loop))
        free = free_in(body)
        kernel = replace(
            self._function,
            name=f"{self._function.name}_{len(self._launches)}",
            parameters=tuple(item for item in (*self._function.parameters, *self._scratch) if item in free),
            body=body,
        )
        for item in sorted(free - set(kernel.parameters), key=lambda item: item.name):
            raise InternalError(self._where, f"reads `{item.name}` outside the launch computing `{item.name}`")
        self._launches.append(Launch(_for_device(kernel), rounds_of(loop)))

    def _may_be_repeated(self, statement: Statement) -> bool:
        """Return whether each kernel may repeat a declaration, because no launch changes the declared value."""
        if isinstance(statement, LocalArray):
            return not statement.buffer.is_writable
        if not isinstance(statement, Let | Alias):
            return False
        parts = tuple(expressions_in((statement,)))
        read = {item.buffer for item in parts if isinstance(item, Load | Address)}
        return not any(isinstance(item, Call) and item.callee.writes for item in parts) and not any(
            self._aliases.may_overlap(source, written) for source in read for written in self._written
        )


def _parallel_loop(statement: Statement) -> For | None:
    """Return a statement as a parallel loop, converting the statement if possible."""
    item = Variable("item")
    match statement:
        case For() if statement.kind is LoopKind.PARALLEL:
            return statement
        case Dispatch(first, end, body, count, grain):
            # A thread does the rounds of a part.
            lets = (Let(first, item * grain), Let(end, smaller(Size(count), first + grain)))
            return For(item, Size(0), Size(ceildiv(count, grain)), (*lets, *body), kind=LoopKind.PARALLEL)
        case Copy(target, target_start, source, source_start, count_):
            return _stores(target, target_start, source[source_start + item], count_, item)
        case Clear(target, index, count_):
            return _stores(target, index, Literal(0, CType(target.dtype)), count_, item)
    return None


def _stores(target: Buffer, first: Expression, value: Expression, count: Expression, item: Variable) -> For:
    return For(item, Size(0), count, (Store(target, first + item, value),), kind=LoopKind.PARALLEL)


def _for_device(function: Function) -> Function:
    """Return a function without vectors, calling only functions without vectors.

    Raises:
        InternalError: the function contains or calls C text, or leaves a parallel loop.
    """
    for problem in _problems(function):
        raise InternalError(f"C function `{function.name}`", problem, expected="statements supported by a grid")

    def called(item: Expression) -> Expression:
        if not isinstance(item, Call) or item.callee.function is None:
            return item
        return replace(item, callee=replace(item.callee, function=_for_device(serialise(item.callee.function))))

    return scalarise(replace(function, body=map_block(function.body, called)))


def _problems(function: Function) -> Iterator[str]:
    is_kernel = any(map(is_parallel, function.body))
    for statement in statements_in(function.body):
        if isinstance(statement, RawStatement | Fail) or (is_kernel and isinstance(statement, Return)):
            yield f"has the statement {type(statement).__name__}"
    for item in expressions_in(function.body):
        if isinstance(item, Raw):
            yield f"has the text `{item.text}`"
        if isinstance(item, Call) and item.callee.function is None and (item.callee.header or item.callee.definition):
            yield f"calls `{item.callee.name}`, a C function for processors only"
