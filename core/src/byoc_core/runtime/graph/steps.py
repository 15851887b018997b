"""The steps of a graph function with numpy kernels: closures over slots of a list of values.

Threads share the steps of a plan, so a step keeps no values: all values of a call are in the list. Slots left occupied
after the last use keep memory until the call ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from byoc_core.errors import ByocError, ExecutionError
from byoc_core.runtime.module import NDArray, TensorSpec

__all__ = ["Step", "node_failure", "plain_step", "scratch_step", "store_step", "writing_step"]

Values = list[Any]
Step = Callable[[Values], None]
"""Reads values, and stores other values in their slots."""


class _WrongCountError(Exception):
    """A kernel returned ``args[0]`` results for a node with ``args[1]``."""


def plain_step(call: Callable[..., Any], operands: Sequence[int], results: Sequence[int], dead: Sequence[int]) -> Step:
    """Return a step that calls a kernel.

    Args:
        call: takes the operands alone.
        operands: the slots of the operands.
        results: the slots of the results.
        dead: the slots of values without further uses, except slots taken by the results.
    """
    if len(results) > 1:
        return _several_results_step(call, operands, results, dead)
    (slot,) = results
    if len(operands) == 1:
        (only,) = operands

        def unary(values: Values) -> None:
            result = call(values[only])
            values[slot] = result if type(result) is not tuple else _only(result)
            for index in dead:
                values[index] = None

        return unary
    pick = _picker(operands)

    def step(values: Values) -> None:
        result = call(*pick(values))
        values[slot] = result if type(result) is not tuple else _only(result)
        for index in dead:
            values[index] = None

    return step


def writing_step(
    call: Callable[..., Any], operands: Sequence[int], slot: int, dead: Sequence[int], out: int, *, broadcasts: bool
) -> Step:
    """Return a step that calls a kernel and offers memory for the only result.

    If the memory is absent or does not fit, the result is a separate array.

    Args:
        call: takes the operands, and ``out``.
        operands: the slots of the operands.
        slot: the slot of the result.
        dead: see :func:`plain_step`.
        out: the slot of the memory.
        broadcasts: whether the kernel would broadcast a result over larger memory than needed; then memory is passed
            only if an operand has the shape of the memory.
    """
    pick = _picker(operands)

    def step(values: Values) -> None:
        arrays, memory = pick(values), values[out]
        try:
            # In strided memory numpy computes other bits of NaN (`arccos`), and even wrong bools (`isnan`, in 2.4).
            is_fit = (
                memory is not None and memory.flags.c_contiguous and not (broadcasts and _is_larger(memory, arrays))
            )
            values[slot] = call(*arrays, out=memory if is_fit else None)
        except (TypeError, ValueError):
            values[slot] = call(*arrays)
        for index in dead:
            values[index] = None

    return step


def scratch_step(
    call: Callable[..., Any], operands: Sequence[int], slot: int, dead: Sequence[int], out: int | None, scratch: int
) -> Step:
    """Return a step that calls a kernel with scratch memory, and perhaps offers memory for the only result.

    Args:
        call: takes the operands, ``out`` and ``scratch``.
        operands: the slots of the operands.
        slot: the slot of the result.
        dead: see :func:`plain_step`.
        out: the slot of the memory for the result.
        scratch: the slot of the scratch memory.
    """
    pick = _picker(operands)

    def step(values: Values) -> None:
        arrays, memory = pick(values), None if out is None else values[out]
        try:
            is_fit = memory is not None and memory.flags.c_contiguous
            values[slot] = call(*arrays, out=memory if is_fit else None, scratch=values[scratch])
        except (TypeError, ValueError):
            values[slot] = call(*arrays)
        for index in dead:
            values[index] = None

    return step


def store_step(source: int, output: int, spec: TensorSpec, function: str) -> Step:
    """Return a step for copying a result into an output's memory, unless already there.

    The step raises an :class:`ExecutionError` if the result is not of the output's type.
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
    """Return the error of a failed step with the location, absent from the kernel's own exception."""
    if isinstance(error, _WrongCountError):
        got, expected = error.args
        return ExecutionError(where, "the kernel returns another number of results", got=got, expected=expected)
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
        for slot, result in zip(results, found, strict=True):
            values[slot] = result
        for index in dead:
            values[index] = None

    return step


def _is_larger(memory: NDArray, arrays: Sequence[NDArray]) -> bool:
    """Return whether the memory of a broadcast result differs in shape from every array."""
    shape = memory.shape
    return all(array.shape != shape for array in arrays)


def _only(results: tuple[Any, ...]) -> Any:
    if len(results) != 1:
        raise _WrongCountError(len(results), 1)
    return results[0]


def _picker(slots: Sequence[int]) -> Callable[[Values], tuple[Any, ...]]:
    """Return a function for picking the values in these slots."""
    if not slots:
        return lambda _: ()
    if len(slots) == 1:
        (only,) = slots
        return lambda values: (values[only],)
    return itemgetter(*slots)
