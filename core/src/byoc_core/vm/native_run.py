"""Runs of a function by a native machine. Python's machine runs calls refused by the native machine.

A refused or failed call is run again by Python's machine: functions have no effect besides their results, so the caller
gets the result, or the exact error, of Python's machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.runtime.extension import extension
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm.frame import Sizes
from byoc_core.vm.linked_function import LinkedFunction

__all__ = ["NativeRun", "Refusals", "describe_arguments"]

_MAX_REFUSALS = 3


class Refusals:
    """The calls of a function refused by a native machine and run by Python's machine.

    Args:
        function: the name of the function.
        on_end: called once all later calls are run by Python's machine.

    Attributes:
        end_reason: the reason for running all later calls by Python's machine; empty before.
    """

    def __init__(self, function: str, on_end: Callable[[], object] = lambda: None) -> None:
        self._function = function
        self._on_end = on_end
        self._count = 0
        self.end_reason = ""

    def count(self, reason: str) -> None:
        """Count a refused call; too many end the use of the native machine, with a warning."""
        self._count += 1
        if self._count < _MAX_REFUSALS or self.end_reason:
            return
        self.end_reason = f"the native machine has refused {self._count} calls: {reason}"
        self._on_end()
        import logging

        logger = logging.getLogger("byoc_core")
        logger.warning("function `%s` is run by Python's machine: %s", self._function, self.end_reason)


class NativeRun:
    """A function run by a native machine.

    Args:
        linked: the function, for Python's machine.
        program: the artifact, loaded by the native machine.
        num_threads: the number of threads of a call, 0 for the number of the process; ``None``: no call uses threads.
        unfit: called as ``unfit(*inputs)`` with inputs that need a check or a conversion first.
        on_end: called once all later calls are run by Python's machine.

    Attributes:
        call: the function as a callable with positional arguments.
    """

    def __init__(
        self,
        linked: LinkedFunction,
        program: object,
        num_threads: int | None,
        unfit: Callable[..., Any],
        on_end: Callable[[], object],
    ) -> None:
        function = linked.function
        module = extension()
        assert module is not None
        self._linked = linked
        self._refusals = Refusals(function.name, on_end)
        self._has_early_results = all(linked.early_results)
        self._native = module.NativeFunction(
            program,
            function.name,
            describe_arguments(function.params),
            describe_arguments(function.results),
            -1 if num_threads is None else num_threads,
            unfit,
            self._call_refused,
        )
        self.call: Callable[..., Any] = self._native

    @property
    def end_reason(self) -> str:
        """The reason for running all later calls by Python's machine; empty before."""
        return self._refusals.end_reason

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None, sizes: Sizes) -> list[Any]:
        """Run the function on checked inputs; see :meth:`LinkedFunction.run`."""
        if self.end_reason:
            return self._linked.run(inputs, outputs, sizes)
        buffers = self._buffers_of_all(outputs)
        returned = self._native.run(tuple(inputs), buffers)
        if returned is None and buffers:
            returned = self._native.run(tuple(inputs), ())
        if not isinstance(returned, tuple):
            results = self._linked.run(inputs, outputs, sizes)
            if returned is not None:
                self._refusals.count(returned)
            return results
        results = [*returned]
        for index, output in enumerate(outputs or ()):
            if output is not None and output is not results[index]:
                output[...] = results[index]
                results[index] = output
        return results

    def _buffers_of_all(self, outputs: Sequence[Any] | None) -> tuple[Any, ...]:
        """Return the outputs if the native machine can fill these: all are given, and of sizes known before the run."""
        if outputs is None or not self._has_early_results or any(output is None for output in outputs):
            return ()
        return tuple(outputs)

    def _call_refused(self, reason: str, inputs: tuple[Any, ...]) -> NDArray | tuple[NDArray, ...]:
        arrays, sizes = self._linked.accept(inputs)
        results = self._linked.run(arrays, None, sizes)
        self._refusals.count(reason)
        return results[0] if len(results) == 1 else tuple(results)


def describe_arguments(specs: Iterable[TensorSpec]) -> tuple[tuple[int, int, int, Any], ...]:
    """Return arguments as described to the extension: dtype code, bits, rank, dtype."""
    return tuple(map(_argument, specs))


def _argument(spec: TensorSpec) -> tuple[int, int, int, Any]:
    info = dtype_info(spec.dtype)
    return int(info.dl_code), info.bits, len(spec.shape), to_numpy(spec.dtype)
