"""byoc in a measuring process: an artifact on a machine with bound buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from byoc_core.benchmarking.engine import EngineTask, OpenedEngine
from byoc_core.errors import CallError
from byoc_core.runtime.module import NDArray
from byoc_core.version import __version__

if TYPE_CHECKING:
    from byoc_core.vm.vm_callable import VMCallable

__all__ = ["open_engine"]


def open_engine(task: EngineTask) -> OpenedEngine:
    """Load the artifact of a task; the parent process has checked the origin of the native code.

    Results of sizes known only after a call are not bound: each call returns fresh arrays. Each call of a function with
    states begins at the values before a first call.

    Raises:
        ByocError: the artifact cannot be loaded, or the inputs do not fit.
    """
    from contextlib import ExitStack

    from byoc_core.artifact import load
    from byoc_core.runtime.threads.blas_threads import limited_blas
    from byoc_core.vm import VirtualMachine

    machine = VirtualMachine(load(task.file, allow_native=True), num_threads=task.num_threads)
    resources = ExitStack()
    resources.enter_context(limited_blas(task.num_threads))
    call: Callable[[], NDArray | tuple[NDArray, ...]]
    function = machine[task.function]
    try:
        call = _unbound_call(function, task) if function.has_states else function.bind(task.inputs)
    except CallError:
        call = _unbound_call(function, task)

    def read_outputs() -> Sequence[NDArray]:
        results = call()
        return results if isinstance(results, tuple) else (results,)

    return OpenedEngine(call, read_outputs, __version__, resources)


def _unbound_call(function: VMCallable, task: EngineTask) -> Callable[[], NDArray | tuple[NDArray, ...]]:
    """Return calls with results in fresh arrays, each on the same values of states."""
    if not function.has_states:
        arrays = [task.inputs[param.name] for param in function.params]
        return lambda: function(*arrays)
    start, current = function.new_state(), function.new_state()

    def call() -> NDArray | tuple[NDArray, ...]:
        current.restart(start)
        results: NDArray | tuple[NDArray, ...] = function.run(task.inputs, state=current)
        return results

    return call
