"""Machines with wrapped calls of compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core import VirtualMachine
from byoc_core.runtime import PackedFunction, RuntimeModule, caller_nbytes

from byoc_conformance.outcome import FailedError
from byoc_conformance.subject import Attempt

__all__ = ["GuardedWorkspace", "guarded_machine", "machine_around"]

Array = npt.NDArray[Any]
Around = Callable[[PackedFunction, Sequence[Array], Sequence[Array]], object]
"""A wrapper around the call of a function with inputs and outputs."""

_ALIGNMENT = 64
_POISON = 0xA5
"""The value of guard bytes."""


class GuardedWorkspace:
    """Scratch memory between guards.

    Args:
        nbytes: the size of the scratch memory.
        content: the initial value of each byte.

    Attributes:
        array: the scratch memory, aligned like the workspace of a machine.
    """

    def __init__(self, nbytes: int, content: int) -> None:
        self._room = np.full(nbytes + 3 * _ALIGNMENT, _POISON, np.uint8)
        self._start = _ALIGNMENT - self._room.ctypes.data % _ALIGNMENT
        self._end = self._start + nbytes
        self.array: Array = self._room[self._start : self._end]
        self.array[...] = content

    def check(self, label: str) -> None:
        """Check that memory before and behind the scratch memory is unwritten.

        Raises:
            FailedError: memory there was written.
        """
        if not ((self._room[: self._start] == _POISON).all() and (self._room[self._end :] == _POISON).all()):
            raise FailedError(f"{label}: memory before or behind the workspace was written")


def machine_around(
    attempt: Attempt, around: Around, is_wrapped: Callable[[RuntimeModule, str], bool] | None = None
) -> VirtualMachine:
    """Return a machine calling ``around(function, inputs, outputs)`` in place of compiled functions.

    A machine passes read-only views to any user replacement of a function. Here a backend's own function is called with
    writeable arrays, to find backends with writes to their inputs.

    Args:
        attempt: the compiled functions.
        around: the wrapper.
        is_wrapped: returns whether a function of a module is wrapped; all functions if not given.
    """
    num_inputs = {
        str(binding.attrs["symbol"]): len(binding.operands)
        for function in attempt.compiled.functions.values()
        for binding in function.walk()
        if "symbol" in binding.attrs
    }

    def call(function: PackedFunction, count: int, *arrays: Array) -> object:
        return around(function, [_writeable(array) for array in arrays[:count]], arrays[count:])

    externs = {}
    for module in attempt.executable.modules:
        for name in module.function_names:
            if is_wrapped is not None and not is_wrapped(module, name):
                continue
            function = module.get_function(name)
            around_it = partial(call, function, num_inputs.get(name, 0))
            externs[name] = PackedFunction(name, around_it, function.signature)
    return attempt.new_machine(externs)


def _writeable(array: Array) -> Array:
    view = array.view()
    with suppress(ValueError):  # read-only memory
        view.flags.writeable = True
    return view


def guarded_machine(attempt: Attempt) -> VirtualMachine:
    """Return a machine with calls failing if a function writes beyond the requested workspace."""
    owners = {name: module for module in attempt.executable.modules for name in module.function_names}

    def around(function: PackedFunction, inputs: Sequence[Array], outputs: Sequence[Array]) -> object:
        traits = owners[function.name].call_traits(function.name)
        shapes = [array.shape for array in (*inputs, *outputs)]
        nbytes = caller_nbytes(traits.workspace_nbytes, function.signature, shapes)
        if not isinstance(nbytes, int) or not nbytes:
            return function.impl(*inputs, *outputs)
        workspace = GuardedWorkspace(nbytes, 0)
        value = function.impl(*inputs, *outputs, workspace.array)
        workspace.check(f"function `{function.name}`")
        return value

    def has_workspace(module: RuntimeModule, name: str) -> bool:
        return not module.get_function(name).returns_results and module.call_traits(name).workspace_nbytes != 0

    return machine_around(attempt, around, has_workspace)
