"""A function of a machine, called on arrays by position or by name, or bound to fixed buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc_core.errors import CallError, near_names
from byoc_core.runtime.arguments import argument_places, as_output, bind_symbols, join_inputs, separate_outputs
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm.bound_arguments import fix_arguments
from byoc_core.vm.bound_call import BoundCall
from byoc_core.vm.device_results import DeviceResults
from byoc_core.vm.linked_function import LinkedFunction
from byoc_core.vm.machine_choice import PYTHON, MachineChoice

if TYPE_CHECKING:
    from byoc_core.vm.native_run import NativeRun
    from byoc_core.vm.native_states import NativeStates
    from byoc_core.vm.state import State

__all__ = ["VMCallable", "check_names", "other_shape"]


class VMCallable:
    """A function of a machine: ``f(*inputs)`` returns an array, or a tuple of arrays unless it has exactly one result.

    Inputs are numpy arrays or anything with ``__dlpack__``, by position or by keyword; results are fresh arrays.
    """

    __slots__ = ("_call", "_choice", "_input_names", "_linked", "_native", "_run_linked")

    def __init__(self, linked: LinkedFunction, choice: MachineChoice, num_threads: int | None) -> None:
        self._linked = linked
        self._choice = choice
        self._input_names = tuple(spec.name for spec in linked.function.params)
        self._native: NativeRun | None = None
        self._use_python()
        if choice.program is not None:
            from byoc_core.vm.native_run import NativeRun

            self._native = NativeRun(linked, choice.program, num_threads, self._call_checked, self._use_python)
            self._call, self._run_linked = self._native.call, self._native.run

    def _use_python(self) -> None:
        self._call, self._run_linked = self._linked.make_entry(self._call_checked), self._linked.run

    @property
    def name(self) -> str:
        """The function's name."""
        return self._linked.function.name

    @property
    def machine(self) -> MachineChoice:
        """The machine that runs the function, with the reason."""
        native = self._native_calls
        return self._choice if native is None or not native.end_reason else MachineChoice(PYTHON, native.end_reason)

    @property
    def _native_calls(self) -> NativeRun | NativeStates | None:
        """The calls by a native machine; ``None`` for Python's machine."""
        return self._native

    @property
    def params(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the inputs."""
        return self._linked.function.params

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the results."""
        return self._linked.function.results

    def __call__(self, /, *inputs: object, **named: object) -> NDArray | tuple[NDArray, ...]:
        """Run the function on inputs by position, then by keyword.

        Raises:
            CallError: an unknown name, wrong count, dtype, rank or shape of an input.
            ExecutionError: a callee of the function failed.
        """
        results: NDArray | tuple[NDArray, ...]
        if named:
            results = self.run(join_inputs(f"function `{self.name}`", self._input_names, inputs, named))
        else:
            results = self._call(*inputs)
        return results

    def _call_checked(self, *inputs: object) -> NDArray | tuple[NDArray, ...]:
        linked = self._linked
        arrays, sizes = linked.accept(inputs)
        results = self._run_linked(arrays, None, sizes)
        return results[0] if len(results) == 1 else tuple(results)

    @property
    def has_states(self) -> bool:
        """Whether the function keeps values from call to call."""
        return False

    @property
    def state(self) -> State:
        """The state of calls without another state; see :meth:`VirtualMachine.state`.

        Raises:
            CallError: the function has no states.
        """
        raise self._stateless()

    def new_state(self, *, capacity: int = 0, limit: int | None = None) -> State:
        """Return a new state; see :meth:`VirtualMachine.new_state`."""
        raise self._stateless()

    def sizes_of(self, inputs: Sequence[object], known_sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the size of each symbol for inputs in order: arrays of the host or of devices.

        Args:
            inputs: the inputs.
            known_sizes: the sizes determined by states, by symbol.

        Raises:
            CallError: an input does not fit.
        """
        return {**known_sizes, **self._linked.accept(inputs)[1]}

    def _stateless(self) -> CallError:
        return CallError(f"function `{self.name}`", "has no states")

    def run(
        self,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None = None,
        state: State | None = None,
        *,
        on_device: bool = False,
    ) -> Any:
        """Run the function on named inputs; see :meth:`VirtualMachine.run`."""
        if state is not None:
            raise self._stateless()
        linked = self._linked
        if out is None and not on_device and type(inputs) is dict and len(inputs) == len(self._input_names):
            try:
                arrays = [inputs[name] for name in self._input_names]
            except KeyError:
                pass  # the check of names reports the error
            else:
                results: NDArray | tuple[NDArray, ...] = self._call(*arrays)
                return results
        if out is not None and not on_device and (returned := linked.run_in_extension(inputs, out)) is not None:
            return returned
        where = f"function `{self.name}`"
        check_names(where, "input", inputs, self.params, complete=True)
        accepted, sizes = linked.accept([inputs[name] for name in self._input_names])
        if out is not None:
            check_names(where, "output", out, self.results, complete=False)
        found = (
            self._run_into(accepted, sizes, out or {}, on_device=on_device)
            if out or on_device
            else self._run_linked(accepted, None, sizes)
        )
        return found[0] if len(found) == 1 else tuple(found)

    def bind(
        self, inputs: Mapping[str, object], out: Mapping[str, object] | None = None, state: State | None = None
    ) -> Callable[[], Any]:
        """Bind the function to fixed buffers; see :meth:`VirtualMachine.bind`."""
        if state is not None:
            raise self._stateless()
        linked = self._linked
        where = f"function `{self.name}`"
        check_names(where, "input", inputs, self.params, complete=True)
        check_names(where, "output", {} if out is None else out, self.results, complete=False)
        if not all(linked.early_results):
            unknown_size = next(
                spec.name for spec, early in zip(self.results, linked.early_results, strict=True) if not early
            )
            raise CallError(where, f"cannot be bound: the size of result `{unknown_size}` is known only after a run")
        arguments = fix_arguments(
            where, self.params, self.results, inputs, out or {}, lambda sizes: linked.result_buffers(None, sizes)
        )
        call = self._bind_linked(arguments.inputs, arguments.outputs, arguments.sizes)
        if not arguments.clean:
            return call

        def run_on_clean_bools() -> Any:
            arguments.refresh()
            return call()

        return run_on_clean_bools

    def _bind_linked(
        self, inputs: Sequence[NDArray], outputs: Sequence[NDArray], sizes: dict[str, int]
    ) -> Callable[[], Any]:
        if self._native is None:
            return self._linked.bind(inputs, outputs, sizes)
        results = outputs[0] if len(outputs) == 1 else tuple(outputs)
        return BoundCall(lambda: self._run_linked(inputs, outputs, sizes), results)

    def _run_into(
        self,
        inputs: Sequence[object],
        sizes: dict[str, int],
        out: Mapping[str, object],
        state_buffers: Mapping[int, Any] = MappingProxyType({}),
        *,
        on_device: bool = False,
    ) -> list[Any]:
        """Run the function with buffers of the caller for some results, and ``state_buffers`` for states."""
        linked = self._linked
        specs = linked.function.results
        if on_device or any(isinstance(buffer, DeviceArray) for buffer in out.values()):
            arrays = DeviceResults(linked, inputs, sizes, out, state_buffers, on_device=on_device)
            return arrays.fill(lambda buffers: self._run_into(inputs, sizes, arrays.host_buffers, buffers))
        if not out:
            return self._run_linked(
                inputs, [*map(state_buffers.get, range(len(specs)))] if state_buffers else None, sizes
            )
        locations = argument_places(f"function `{self.name}`", "output", specs)
        caller_buffers = {
            index: as_output(out[spec.name], spec, locations[index])
            for index, spec in enumerate(specs)
            if spec.name in out and index not in state_buffers
        }
        early = [index for index in caller_buffers if linked.early_results[index]]
        bind_symbols(
            [specs[i] for i in early],
            [caller_buffers[i] for i in early],
            [locations[i] for i in early],
            sizes=dict(sizes),
        )
        separated, finish = separate_outputs(
            [array for array in inputs if isinstance(array, np.ndarray)],
            list(caller_buffers.values()),
            [locations[index] for index in caller_buffers],
        )
        targets = dict(zip(caller_buffers, separated, strict=True))
        buffers = [targets[index] if index in early else state_buffers.get(index) for index in range(len(specs))]
        results = self._run_linked(inputs, buffers, sizes)
        for index, target in targets.items():
            if index not in early:
                if results[index].shape != target.shape:
                    raise other_shape(locations[index], target, results[index])
                target[...] = results[index]
            results[index] = caller_buffers[index]
        if finish is not None:
            finish()
        return results

    def __repr__(self) -> str:
        return f"<VM function {self.name}>"


def other_shape(where: str, buffer: NDArray, result: NDArray) -> CallError:
    """Return the error of a buffer that does not fit a result of a size learnt by the run."""
    return CallError(where, "has another shape than the result", got=list(buffer.shape), expected=list(result.shape))


def check_names(
    where: str, role: str, arrays: Mapping[str, object], specs: Sequence[TensorSpec], *, complete: bool
) -> None:
    """Check the names of inputs or outputs.

    Raises:
        CallError: a name is unknown, or missing from a complete set.
    """
    names = [spec.name for spec in specs]
    if not isinstance(arrays, Mapping):
        raise CallError(where, f"{role}s are not passed by name", got=type(arrays).__name__, expected="a mapping")
    for name in arrays:
        if name not in names:
            raise CallError(
                where,
                f"has no {role} `{name}`",
                expected=", ".join(names) or f"no {role} at all",
                hint=near_names(name, names) or None,
            )
    missing = [name for name in names if name not in arrays]
    if complete and missing:
        raise CallError(
            where, f"{role} {', '.join(f'`{name}`' for name in missing)} is missing", expected=", ".join(names)
        )
