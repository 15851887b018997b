"""The calls that a graph function consists of when numpy kernels run it: closures over places in a list of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from byoc_core.errors import ByocError, ExecutionError
from byoc_core.runtime.module import NDArray, TensorSpec

__all__ = ["Step", "node_failure", "plain_step", "scratch_step", "store_step", "writing_step"]

Values = list[Any]
Step = Callable[[Values], None]
"""Reads values, and puts others into their places."""


class _WrongCountError(Exception):
    """A kernel gave ``args[0]`` results where the node has ``args[1]``."""


def plain_step(call: Callable[..., Any], operands: Sequence[int], results: Sequence[int], dead: Sequence[int]) -> Step:
    """Gives the step that calls a kernel.

    Args:
        call: takes the operands alone.
        operands: the places of the operands.
        results: the places of the results.
        dead: the places of what nothing reads afterwards, but those that the results take.
    """
    if len(results) > 1:
        return _several_results_step(call, operands, results, dead)
    (place,) = results
    if len(operands) == 1:
        (only,) = operands

        def unary(values: Values) -> None:
            result = call(values[only])
            values[place] = result if type(result) is not tuple else _only(result)
            for index in dead:
                values[index] = None

        return unary
    pick = _picker(operands)

    def step(values: Values) -> None:
        result = call(*pick(values))
        values[place] = result if type(result) is not tuple else _only(result)
        for index in dead:
            values[index] = None

    return step


def writing_step(
    call: Callable[..., Any], operands: Sequence[int], place: int, dead: Sequence[int], out: int, *, spreads: bool
) -> Step:
    """Gives the step that calls a kernel and offers it memory for its only result.

    Where there is none, or it does not fit, the result is an array of its own.

    Args:
        call: takes the operands, and ``out``.
        operands: the places of the operands.
        place: the place of the result.
        dead: see :func:`plain_step`.
        out: the place of the memory.
        spreads: whether the kernel would spread a result over larger memory than it needs; then it is given memory
            only where an operand has its shape.
    """
    pick = _picker(operands)

    def step(values: Values) -> None:
        arrays, memory = pick(values), values[out]
        try:
            # Into strided memory numpy computes other bits of NaN (`arccos`), and even other truths (`isnan`, in 2.4).
            is_fit = memory is not None and memory.flags.c_contiguous and not (spreads and _is_larger(memory, arrays))
            values[place] = call(*arrays, out=memory if is_fit else None)
        except (TypeError, ValueError):
            values[place] = call(*arrays)
        for index in dead:
            values[index] = None

    return step


def scratch_step(
    call: Callable[..., Any], operands: Sequence[int], place: int, dead: Sequence[int], out: int | None, scratch: int
) -> Step:
    """Gives the step that calls a kernel with scratch memory, and perhaps offers it memory for its only result.

    Args:
        call: takes the operands, ``out`` and ``scratch``.
        operands: the places of the operands.
        place: the place of the result.
        dead: see :func:`plain_step`.
        out: the place of the memory for the result.
        scratch: the place of the scratch memory.
    """
    pick = _picker(operands)

    def step(values: Values) -> None:
        arrays, memory = pick(values), None if out is None else values[out]
        try:
            is_fit = memory is not None and memory.flags.c_contiguous
            values[place] = call(*arrays, out=memory if is_fit else None, scratch=values[scratch])
        except (TypeError, ValueError):
            values[place] = call(*arrays)
        for index in dead:
            values[index] = None

    return step


def store_step(source: int, output: int, spec: TensorSpec, function: str) -> Step:
    """Gives the step that copies a result into an output's memory, if it is not there already.

    The step raises an :class:`ExecutionError` where the result is not of the output's type.
    """

    def store(values: Values) -> None:
        result, memory = values[source], values[output]
        if result is memory:
            return
        if result.shape != memory.shape or result.dtype != memory.dtype:
            raise ExecutionError(
                f"graph function `{function}`, output `{spec.name}`",
                "the result is not of the declared type",
                got=f"{result.dtype}{list(result.shape)}",
                expected=f"{memory.dtype}{list(memory.shape)}",
            )
        memory[...] = result

    return store


def node_failure(where: str, error: Exception) -> ExecutionError:
    """Gives the error of a step that failed: what a kernel raises says nothing of the place."""
    if isinstance(error, _WrongCountError):
        got, expected = error.args
        return ExecutionError(where, "the kernel gives another number of results", got=got, expected=expected)
    if isinstance(error, ByocError):
        return ExecutionError(where, str(error))
    return ExecutionError(where, f"the kernel failed: {type(error).__name__}: {error}")


def _several_results_step(
    call: Callable[..., Any], operands: Sequence[int], results: Sequence[int], dead: Sequence[int]
) -> Step:
    pick = _picker(operands)

    def step(values: Values) -> None:
        found = call(*pick(values))
        if not isinstance(found, tuple):
            raise _WrongCountError(1, len(results))
        if len(found) != len(results):
            raise _WrongCountError(len(found), len(results))
        for place, result in zip(results, found, strict=True):
            values[place] = result
        for index in dead:
            values[index] = None

    return step


def _is_larger(memory: NDArray, arrays: Sequence[NDArray]) -> bool:
    """Tells whether no array has the shape of memory that holds what they are broadcast to."""
    shape = memory.shape
    return all(array.shape != shape for array in arrays)


def _only(results: tuple[Any, ...]) -> Any:
    if len(results) != 1:
        raise _WrongCountError(len(results), 1)
    return results[0]


def _picker(places: Sequence[int]) -> Callable[[Values], tuple[Any, ...]]:
    """Gives a function that picks the values at these places."""
    if not places:
        return lambda _: ()
    if len(places) == 1:
        (only,) = places
        return lambda values: (values[only],)
    return itemgetter(*places)
