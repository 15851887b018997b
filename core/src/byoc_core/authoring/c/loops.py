"""Transformations of single loops: split, peel, unroll."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from byoc_core.authoring.c.expressions import Expression, Load, MemoryAccess, Select, Size, Variable
from byoc_core.authoring.c.renewal import renewed
from byoc_core.authoring.c.statements import Block, Copy, For, LoopKind, Store
from byoc_core.authoring.c.strides import stride_of
from byoc_core.authoring.c.traversal import substitute, with_blocks
from byoc_core.dims import ceildiv, is_nonnegative
from byoc_core.errors import InternalError

__all__ = ["as_copy", "change_loop", "peeled", "smaller", "split", "unrolled"]


def change_loop(block: Block, index: Variable, change: Callable[[For], Block]) -> Block:
    """Return a block with a loop replaced by statements.

    Args:
        block: the block; the loop may stand at any depth.
        index: the index of the loop.
        change: returns the statements.

    Raises:
        InternalError: there is no such loop.
    """
    found = False

    def of(inner: Block) -> Block:
        nonlocal found
        result: Block = ()
        for statement in inner:
            if isinstance(statement, For) and statement.index is index:
                found = True
                result += change(statement)
            else:
                result += (with_blocks(statement, of),)
        return result

    result = of(block)
    if not found:
        raise InternalError(f"loop over `{index.name}`", "is not there")
    return result


def smaller(one: Expression, other: Expression) -> Expression:
    """Return the smaller of two indices as a :class:`Select`, not a call as by :func:`index_min`."""
    if isinstance(one, Size) and isinstance(other, Size) and isinstance(one.dim, int) and isinstance(other.dim, int):
        return Size(min(one.dim, other.dim))
    return Select(one.compare("<", other), one, other)


def split(loop: For, size: int) -> tuple[For, Variable, Variable]:
    """Return a loop over tiles with a loop over the rounds of a tile inside, and the indices of both.

    The last tile is smaller if the size does not divide the number of rounds.

    Args:
        loop: goes from 0 in steps of 1.
        size: rounds of a tile.
    """
    _check_plain(loop)
    outer, inner = Variable(f"{loop.index.name}_tile"), Variable(loop.index.name)
    first = outer * size
    stop: Expression = Size(size)
    tiles: Expression
    match loop.stop:
        case Size(dim):
            tiles = Size(ceildiv(dim, size))
            if ceildiv(dim, size) * size != dim:
                stop = smaller(loop.stop - first, stop)
        case _:
            tiles = (loop.stop + (size - 1)) // size
            stop = smaller(loop.stop - first, stop)
    body = substitute(loop.body, {loop.index: first + inner})
    tile = replace(loop, index=inner, stop=stop, body=body, kind=LoopKind.SERIAL, grain=1, round_ps=None)
    return replace(loop, index=outer, stop=tiles, body=(tile,), grain=1, round_ps=None), outer, inner


def peeled(loop: For, multiple: int) -> Block:
    """Return a loop over the largest multiple of a number of rounds, and a loop over the remaining rounds.

    Args:
        loop: goes from 0 to a size in steps of 1.
        multiple: the number.
    """
    _check_plain(loop)
    if not isinstance(loop.stop, Size):
        full_rounds: Expression = loop.stop // multiple * multiple
    else:
        full_rounds = Size(loop.stop.dim // multiple * multiple)
        if full_rounds == loop.stop:
            return (loop,)
    rest = replace(loop, start=full_rounds)
    (rest,) = renewed((rest,))  # type: ignore[assignment]
    return (replace(loop, stop=full_rounds), rest)


def unrolled(loop: For) -> Block:
    """Return the rounds of a loop in sequence, each with separate declarations.

    Raises:
        InternalError: the number of rounds is not known.
    """
    match loop.start, loop.stop:
        case Size(int(first)), Size(int(end)):
            rounds = range(first, end, loop.step)
            return tuple(
                statement
                for number in rounds
                for statement in substitute(renewed(loop.body), {loop.index: Size(number)})
            )
    raise InternalError(f"loop over `{loop.index.name}`", "has no known number of rounds")


def as_copy(loop: For, *, is_part: bool = False) -> Copy | None:
    """Return the copy equivalent to a loop that only moves contiguous elements without overlap, else ``None``.

    A loop with an end before the start has no rounds, but a copy of fewer than 0 elements is not permitted: the end of
    the loop must be provably no less than the start.

    Args:
        loop: the loop.
        is_part: whether the bounds are the first round and the end of a part of all rounds, hence in order.
    """
    match loop.start, loop.stop:
        case Size(begin), Size(end) if is_nonnegative(end - begin):
            pass
        case _ if not is_part:
            return None
    match loop.body:
        case (Store(target, write, Load(source, read, 1)),) if loop.step == 1 and target.access is MemoryAccess.WRITE:
            if source is target or stride_of(write, loop.index) != 1 or stride_of(read, loop.index) != 1:
                return None
            first = {loop.index: loop.start}
            (moved,) = substitute((Store(target, write, read),), first)
            assert isinstance(moved, Store)
            return Copy(target, moved.index, source, moved.value, loop.stop - loop.start)
    return None


def _check_plain(loop: For) -> None:
    if loop.start != Size(0) or loop.step != 1:
        raise InternalError(f"loop over `{loop.index.name}`", "does not go from 0 in steps of 1")
