"""The virtual machine: execution of an executable's functions on arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from byoc_core.errors import ByocError, CallError, ExecutionError, OptionsError, near_names
from byoc_core.runtime.arguments import (
    argument_places,
    as_input,
    as_output,
    bind_symbols,
    join_inputs,
    separate_outputs,
)
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.devices import Device
from byoc_core.runtime.extension import extension
from byoc_core.runtime.module import NDArray, RuntimeModule, TensorSpec
from byoc_core.runtime.parts import start_recording
from byoc_core.runtime.threads import check_num_threads, enter_call, leave_call, open_accounts
from byoc_core.vm.bound_call import BoundCall
from byoc_core.vm.device_choice import choose_devices
from byoc_core.vm.device_results import DeviceResults
from byoc_core.vm.instructions import Call, CallKind
from byoc_core.vm.linked_function import LinkedFunction, Record
from byoc_core.vm.linking import link
from byoc_core.vm.machine_choice import PYTHON, Machine, MachineChoice, choose_machines, requested
from byoc_core.vm.program import Program
from byoc_core.vm.verify import verify

if TYPE_CHECKING:
    from byoc_core.vm.native_run import NativeRun
    from byoc_core.vm.state import State

__all__ = ["ExecutableLike", "VMCallable", "VirtualMachine", "check_names"]


class ExecutableLike(Protocol):
    """The parts required by a machine: a program, the modules defining the symbols, and the constants by digest."""

    @property
    def program(self) -> Program:
        """The program with the machine's functions."""

    @property
    def modules(self) -> Sequence[RuntimeModule]:
        """The modules defining the program's external symbols."""

    @property
    def constants(self) -> Mapping[str, Any]:
        """The program's constants, by digest."""


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
        native = self._native
        return self._choice if native is None or not native.end_reason else MachineChoice(PYTHON, native.end_reason)

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

    def bind(self, inputs: Mapping[str, object], out: Mapping[str, object] | None = None) -> Callable[[], Any]:
        """Bind the function to fixed buffers; see :meth:`VirtualMachine.bind`."""
        linked = self._linked
        where = f"function `{self.name}`"
        check_names(where, "input", inputs, self.params, complete=True)
        check_names(where, "output", {} if out is None else out, self.results, complete=False)
        if not all(linked.early_results):
            unknown_size = next(
                spec.name for spec, early in zip(self.results, linked.early_results, strict=True) if not early
            )
            raise CallError(where, f"cannot be bound: the size of result `{unknown_size}` is known only after a run")
        locations = argument_places(where, "input", self.params)
        arrays = [as_input(inputs[spec.name], spec, locations[i], is_fixed=True) for i, spec in enumerate(self.params)]
        for index, (spec, array) in enumerate(zip(self.params, arrays, strict=True)):
            _check_fixed(array, inputs[spec.name], locations[index])
        sizes = bind_symbols(self.params, arrays, locations)
        locations = argument_places(where, "output", self.results)
        outputs = linked.result_buffers(None, sizes)
        named_outputs = dict(out or {})
        for index, spec in enumerate(self.results):
            if spec.name in named_outputs:
                outputs[index] = as_output(named_outputs[spec.name], spec, locations[index])
                _check_fixed(outputs[index], named_outputs[spec.name], locations[index])
        bind_symbols(self.results, outputs, locations, sizes=dict(sizes))
        buffers, finish = separate_outputs(arrays, outputs, locations)
        if finish is not None:
            index = next(i for i, (own, output) in enumerate(zip(buffers, outputs, strict=True)) if own is not output)
            raise CallError(locations[index], "cannot be bound: the buffer shares memory with an input")
        bools = [index for index, spec in enumerate(self.params) if spec.dtype == "bool"]
        if not bools:
            return self._bind_linked(arrays, outputs, sizes)
        own = {index: np.empty_like(arrays[index]) for index in bools}
        call = self._bind_linked([own.get(index, array) for index, array in enumerate(arrays)], outputs, sizes)

        def run_on_clean_bools() -> Any:
            for index, clean in own.items():
                np.not_equal(arrays[index].view(np.uint8), 0, out=clean)
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
                    raise CallError(
                        locations[index],
                        "has another shape than the result",
                        got=list(target.shape),
                        expected=list(results[index].shape),
                    )
                target[...] = results[index]
            results[index] = caller_buffers[index]
        if finish is not None:
            finish()
        return results

    def __repr__(self) -> str:
        return f"<VM function {self.name}>"


class VirtualMachine:
    """A machine to run the functions of an executable.

    The program is verified and linked once, during construction; nothing runs before all symbols are found. Several
    threads may use the same machine: each call has separate registers and memory for intermediates.

    Args:
        executable: program, modules and constants.
        externs: callables by symbol, for symbols not defined by any module, or instead of a module's.
            A callable called in destination-passing style is ``f(*inputs, *outputs)``, the value is ignored; a
            callable called by ``call_packed`` returns an array or a tuple of arrays. Inputs are read-only views because
            the arrays may belong to the caller, or hold values read again later.
        native: whether native calls may run in a single run of the C extension, if available. Otherwise each call is
            made by Python; the results are the same.
        num_threads: the number of threads for each call, including the calling thread; by default the number of the
            process (see :mod:`byoc_core.runtime.threads`).
        record: receives the name of a function and the times of the calls inside (read by
            :func:`byoc_core.runtime.parts.events_of`) after each run of the function, perhaps in several pieces, in
            the running thread. A machine without ``record`` measures nothing. See :func:`byoc_core.profile`.
        machine: the machine to run the functions: ``"python"``; ``"native"``, the native machine of an installed
            distribution; or ``"auto"``, the native machine for functions with instructions run by Python in each call,
            if the executable comes from an artifact. By default the environment variable ``BYOC_MACHINE``, else
            ``"auto"``. :attr:`VMCallable.machine` has the choice and the reason.
        devices: for a program with functions on devices: the device of a domain, or its index among the devices of the
            runtime, by name of the domain (``npu``, or ``npu:1`` for the second of several devices of one memory); by
            default the device of the same number. Results are complete when a call returns.

    Raises:
        OptionsError: ``num_threads`` or ``BYOC_NUM_THREADS`` is no number of threads, ``executable`` is a path,
            ``devices`` names no domain of the program, or the native machine is asked for and cannot run a function.
        ProgramError: the program breaks a law.
        LinkError: a symbol or constant is missing, is defined twice, or does not fit.
        ExecutionError: a module cannot be prepared for calls, or a device cannot hold the constants.
    """

    def __init__(
        self,
        executable: ExecutableLike,
        *,
        externs: Mapping[str, Callable[..., object]] | None = None,
        native: bool = True,
        num_threads: int | None = None,
        record: Record | None = None,
        devices: Mapping[str, Device | int] | None = None,
        machine: Machine | None = None,
    ) -> None:
        requested_machine = requested(machine)
        if isinstance(executable, str | os.PathLike):
            raise OptionsError(
                "VirtualMachine",
                "got a path",
                expected="an executable",
                hint="byoc_core.Session(path) opens the file; byoc_core.load(path) returns its executable.",
            )
        program = executable.program
        verify(program)
        requested_threads = None if num_threads is None else check_num_threads(num_threads)
        # An extern may contain any code: it receives the number of threads, and its OpenMP code respects this number.
        if externs or any(module.uses_threads for module in executable.modules):
            open_accounts(extension())
            requested_threads = requested_threads or 0
        else:
            requested_threads = None
        modules, constants = executable.modules, executable.constants
        chosen_devices = choose_devices(program, modules, devices or {}) if program.domains or devices else ()
        linked = link(
            program,
            modules,
            constants,
            externs or {},
            native=native,
            num_threads=requested_threads,
            record=record,
            devices=chosen_devices,
        )
        if record is not None:
            start_recording()
            for module in modules:
                module.report_parts()
        entry_points = _entry_points(program)
        choices = choose_machines(
            requested_machine,
            executable,
            linked,
            entry_points,
            obstacle=_native_obstacle(native=native, externs=externs, record=record),
        )
        for name in entry_points:
            if choices[name].program is None:
                linked[name].prepare()
        if any(choices[name].program is None for name in entry_points):
            _prepare(modules, requested_threads)
        self._program = program
        self._devices = dict(zip(program.domain_names, chosen_devices, strict=False))
        self._callables = {
            name: VMCallable(function, choices[name], requested_threads)
            for name, function in linked.items()
            if not function.function.states
        }
        if len(self._callables) < len(linked):
            from byoc_core.vm.stateful_callable import stateful_callables

            self._callables |= stateful_callables(linked, constants, choices)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of all functions, in order."""
        return self._program.function_names

    @property
    def devices(self) -> Mapping[str, Device]:
        """The devices, by name of the memory domain."""
        return MappingProxyType(self._devices)

    def __getitem__(self, name: str) -> VMCallable:
        """Return the function of this name.

        Raises:
            CallError: no such function; near names are listed.
        """
        function = self._callables.get(name)
        if function is None:
            raise CallError(
                f"function `{name}`",
                "is not in the program",
                expected=", ".join(self.functions) or "no function at all",
                hint=near_names(name, self.functions) or None,
            )
        return function

    def state(self, name: str = "main") -> State:
        """Return the state owned by the machine: the state of all calls without another state.

        Raises:
            CallError: there is no such function, or the function has no states.
        """
        return self[name].state

    def new_state(self, name: str = "main", *, capacity: int = 0, limit: int | None = None) -> State:
        """Return a new state, for another sequence of calls; :meth:`run` takes the state.

        Args:
            name: the name of the function.
            capacity: the rows of moving lengths for which room is made at once. With more rows, buffers are replaced by
                buffers of twice the rows.
            limit: the maximum rows of moving lengths; a longer value is an error, before anything runs.

        Raises:
            CallError: there is no such function, or the function has no states.
            OptionsError: a number is no number of rows.
        """
        return self[name].new_state(capacity=capacity, limit=limit)

    def run(
        self,
        name: str,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None = None,
        state: State | None = None,
        *,
        on_device: bool = False,
    ) -> Any:
        """Run a function on named inputs.

        Args:
            name: the name of the function.
            inputs: every input, by name: arrays of the host, or arrays on a device of the machine
                (:class:`byoc_core.runtime.device_arrays.DeviceArray`, or another package's by DLPack), read there
                without a copy.
            out: buffers for some or all results, by name; the others are fresh: numpy arrays, or tensors with
                ``__dlpack__`` in writable memory of the CPU. A buffer may overlap an input, and need not be contiguous.
                Device arrays are filled on the device.
            state: the values kept from call to call; by default the state owned by the machine.
            on_device: whether fresh results made by a device stay there, as device arrays; all others are arrays of the
                host.

        Returns:
            The result, or a tuple of all results unless there is exactly one; buffers of ``out`` are among these.
            States are not among inputs and results.

        Raises:
            CallError: an unknown or missing name, or an unfit argument. Nothing has run in this case, except if a
                buffer does not fit a result of a size only known after the run.
            ExecutionError: a callee of the function failed.
        """
        return self[name].run(inputs, out, state, on_device=on_device)

    def bind(
        self, name: str, inputs: Mapping[str, object], out: Mapping[str, object] | None = None
    ) -> Callable[[], Any]:
        """Return a callable without arguments to run a function on exactly these buffers as fast as possible.

        Change the contents of the inputs, call, and read the results: always the same arrays. Calls from several
        threads wait for each other; a nested call (for example by an extern) is a ``RuntimeError``.

        Args:
            name: the name of the function.
            inputs: every input, by name: C-contiguous and aligned arrays of the host, readable without conversion.
            out: buffers for some or all results, by name; the others are allocated once, here. A buffer must not
                overlap another array. No buffer lies on a device.

        Returns:
            The callable, returning the result, or a tuple of all results unless there is exactly one.

        Raises:
            CallError: an unknown or missing name, an argument unfit or in need of a copy, an overlapping buffer, or a
                result of a size only known after the run.
        """
        return self[name].bind(inputs, out)

    def __repr__(self) -> str:
        return f"<virtual machine: {', '.join(self.functions)}>"


def _native_obstacle(*, native: bool, externs: Mapping[str, Any] | None, record: Record | None) -> str:
    """Return a reason of the arguments against a native machine; empty without."""
    if not native:
        return "each call is made by Python (`native=False`)"
    if externs:
        return "functions of the caller are called (`externs`)"
    return "" if record is None else "calls are recorded"


def _prepare(modules: Sequence[RuntimeModule], num_threads: int | None) -> None:
    """Prepare modules for calls with a number of threads, in the sense of :func:`link`."""
    token = None if num_threads is None else enter_call(num_threads)
    try:
        for module in modules:
            try:
                module.prepare()
            except ByocError:
                raise
            except Exception as error:
                problem = f"cannot be prepared for calls: {type(error).__name__}: {error}"
                raise ExecutionError(f"module of runtime `{module.type_key}`", problem) from error
    finally:
        if token is not None:
            leave_call(token)


def _entry_points(program: Program) -> list[str]:
    if len(program.functions) == 1:
        return list(program.function_names)
    calls = (call for function in program.functions for call in function.code if isinstance(call, Call))
    called = {call.callee for call in calls if call.kind is CallKind.FUNCTION}
    return [name for number, name in enumerate(program.function_names) if number not in called]


def _check_fixed(array: NDArray, value: object, where: str) -> None:
    """Check an argument for permanent use in place, without a copy."""
    is_copy = array is not value and array.flags.owndata
    if is_copy or not (array.flags.c_contiguous and array.flags.aligned):
        raise CallError(
            where,
            "cannot be bound: each call would copy the array",
            expected="a C-contiguous and aligned array",
        )


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
