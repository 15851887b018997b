"""Outlining of parallel loops: loops with enough work run on several threads, the others in order.

The thresholds are in :mod:`byoc_core.authoring.csource_parallel`, the work comes from
:mod:`byoc_core.authoring.c.estimate`. A wrong estimate costs time only: results are the same on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeGuard

from byoc_core.authoring.c.estimate import KnownCalls, loop_times, rounds_of
from byoc_core.authoring.c.expressions import MemoryAccess, Size, Variable
from byoc_core.authoring.c.loops import as_copy
from byoc_core.authoring.c.renewal import without_clashes
from byoc_core.authoring.c.simplify import simplify_block
from byoc_core.authoring.c.statements import Block, Dispatch, For, Function, LoopKind, Statement
from byoc_core.authoring.c.traversal import buffers_written, statements_in, substitute, with_blocks
from byoc_core.authoring.c.unused import drop_unused
from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, ParallelWork

__all__ = ["ParallelWork", "is_parallel", "outline", "parallel_works", "serialise"]


def parallel_works(function: Function, calls: KnownCalls | None = None) -> list[ParallelWork]:
    """Return the work of each parallel loop of a function, in order, including loops already outlined.

    Args:
        function: the function.
        calls: the known work of called functions, from earlier estimates; grows.
    """
    return list(_works_of(function, calls).values())


def outline(function: Function, *, has_team: bool = False, calls: KnownCalls | None = None) -> Function:
    """Return a function with parallel loops outlined if their work may be enough, and serial otherwise.

    An already outlined loop, with a block that iterates over its part of the rounds in its own way, is treated alike.

    Args:
        function: the function.
        has_team: whether threads stay awake around the function; then less work is worth sharing.
        calls: the known work of called functions, from earlier estimates; grows.
    """
    works = _works_of(function, calls)

    def outlined(loop: For | Dispatch) -> Block:
        work = works[id(loop)]
        is_profitable = work.is_worth_waking or (has_team and work.is_worth_sharing)
        if isinstance(loop, Dispatch):
            return (replace(loop, work_ps=work.work_ps),) if is_profitable else _serial(loop)
        # The count of a dispatch is exact; for ends other than sizes only an estimate is known.
        if not is_profitable or loop.start != Size(0) or loop.step != 1 or not isinstance(loop.stop, Size):
            return _serial(loop)
        first, end = Variable(FIRST_ITEM), Variable(END_ITEM)
        body = _serial(replace(loop, start=first, stop=end), is_part=True)
        return (Dispatch(first, end, body, work.count, loop.grain, work.work_ps),)

    # With known bounds of a part, more of the values inside are known.
    return replace(function, body=drop_unused(_map_parallel(function.body, outlined)))


def serialise(function: Function) -> Function:
    """Return a function with all parallel loops run in order, for a target without threads."""
    return replace(function, body=_map_parallel(function.body, _serial))


def _serial(loop: For | Dispatch, *, is_part: bool = False) -> Block:
    """Return the loop for a single thread, marked as independent rounds if a compiler cannot know this."""
    if isinstance(loop, Dispatch):
        return simplify_block(substitute(loop.body, {loop.first: Size(0), loop.end: Size(loop.count)}))
    if (copy := as_copy(loop, is_part=is_part)) is not None:
        return (copy,)
    is_innermost = not any(isinstance(item, For) for item in statements_in(loop.body))
    is_shared = any(buffer.access is MemoryAccess.SHARED for buffer in buffers_written(loop.body))
    return (replace(loop, kind=LoopKind.VECTOR if is_innermost and is_shared else LoopKind.SERIAL),)


def is_parallel(statement: Statement) -> TypeGuard[For | Dispatch]:
    """Return whether a statement is a parallel loop, outlined or not."""
    return isinstance(statement, Dispatch) or (isinstance(statement, For) and statement.kind is LoopKind.PARALLEL)


def _works_of(function: Function, calls: KnownCalls | None) -> dict[int, ParallelWork]:
    """Return the work of each parallel loop, by the identity of the statement, in order."""
    loops = [item for item in statements_in(function.body) if is_parallel(item)]
    times = loop_times(function, calls) if loops else {}
    counts = (item.count if isinstance(item, Dispatch) else rounds_of(item) for item in loops)
    return {id(loop): ParallelWork(count, times[id(loop)]) for loop, count in zip(loops, counts, strict=True)}


def _map_parallel(block: Block, change: Callable[[For | Dispatch], Block]) -> Block:
    # The bodies of two loops may declare the same variables, and stand side by side in serial code.
    return without_clashes(
        change(statement)
        if is_parallel(statement)
        else (with_blocks(statement, lambda inner: _map_parallel(inner, change)),)
        for statement in block
    )
