"""Runs of a function with states by a native machine. Python's machine runs calls refused by the native machine.

The native machine has the values of a state in buffers of its own. A refused or failed call leaves the values before
the call: Python's machine takes the buffers, and runs the call again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from byoc_core.dims import bound_symbols, shape_symbols
from byoc_core.dtypes import dtype_info
from byoc_core.runtime.extension import extension
from byoc_core.vm.linked_function import LinkedFunction
from byoc_core.vm.native_run import Refusals, describe_arguments
from byoc_core.vm.program import Program, VMFunction
from byoc_core.vm.state_laws import overwritten_states

if TYPE_CHECKING:
    from byoc_core._native import NativeState
    from byoc_core.vm.state_values import StateInfo

__all__ = ["NativeStates", "find_costly_state", "find_unknown_size"]

_MAX_SAVED_NBYTES = 1 << 20
"""The bytes of an old value saved before each call: the copy takes some ten microseconds."""


class NativeStates:
    """The states of a function run by a native machine.

    Args:
        linked: the function, for Python's machine.
        infos: the states of the function.
        program: the artifact, loaded by the native machine.
        num_threads: the number of threads of a call, 0 for the number of the process; ``None``: no call uses threads.

    Attributes:
        infos: the states of the function.
        refusals: the calls refused by the native machine.
    """

    def __init__(
        self,
        linked: LinkedFunction,
        infos: Sequence[StateInfo],
        program: object,
        num_threads: int | None,
    ) -> None:
        function = linked.function
        module = extension()
        assert module is not None
        self.infos = infos
        self.refusals = Refusals(function.name)
        self._function = module.NativeFunction(
            program,
            function.name,
            describe_arguments(function.inputs),
            describe_arguments(function.outputs),
            -1 if num_threads is None else num_threads,
            None,
            None,
        )
        self._make_state = module.NativeState
        self._values = describe_arguments(info.before for info in infos)
        overwritten = overwritten_states(linked.program, function)
        self._overwrites = bytes(number in overwritten for number in range(len(infos)))

    @property
    def end_reason(self) -> str:
        """The reason for running all later calls by Python's machine; empty before."""
        return self.refusals.end_reason

    def new_state(self, capacity: int, limit: int) -> NativeState:
        """Return buffers of the native machine for a state, without values."""
        state: NativeState = self._make_state(self._function, self._values, self._overwrites, capacity, limit)
        return state


def find_costly_state(program: Program, function: VMFunction) -> str | None:
    """Return the name of a state with an old value too large to be saved before each call; ``None`` without.

    Only old values overwritten by a call are saved. A moving length has no bound; of other values, symbolic sizes count
    as 1.
    """
    for number in sorted(overwritten_states(program, function)):
        state = function.states[number]
        spec = function.params[state.param]
        sizes = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
        if state.axis is not None or prod(sizes) * dtype_info(spec.dtype).itemsize > _MAX_SAVED_NBYTES:
            return spec.name
    return None


def find_unknown_size(function: VMFunction) -> str | None:
    """Return the first symbol not determined by the shapes of the old values, as with a lone ``n*m``; ``None`` without.

    The native machine knows the sizes of the first call by the shapes of the values alone: it would accept a later call
    with another ``n`` and the same ``n*m``.
    """
    shapes = [function.params[state.param].shape for state in function.states]
    symbols = shape_symbols(dim for shape in shapes for dim in shape)
    return min(symbols - bound_symbols(shapes), default=None)
