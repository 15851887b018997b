"""The virtual machine: execution of an executable's functions on arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from byoc_core.errors import ByocError, CallError, ExecutionError, OptionsError, near_names
from byoc_core.runtime.devices import Device
from byoc_core.runtime.extension import extension
from byoc_core.runtime.module import RuntimeModule
from byoc_core.runtime.parts import start_recording
from byoc_core.runtime.threads import check_num_threads, enter_call, leave_call, open_accounts
from byoc_core.vm.device_choice import choose_devices
from byoc_core.vm.instructions import Call, CallKind
from byoc_core.vm.linked_function import Record
from byoc_core.vm.linking import link
from byoc_core.vm.machine_choice import Machine, choose_machines, requested
from byoc_core.vm.program import Program
from byoc_core.vm.verify import verify
from byoc_core.vm.vm_callable import VMCallable

if TYPE_CHECKING:
    from byoc_core.vm.state import State

__all__ = ["ExecutableLike", "VirtualMachine"]


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

            self._callables |= stateful_callables(linked, constants, choices, requested_threads)

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
            limit: the maximum rows of moving lengths, at most 2**31 - 1; a longer value is an error, before anything
                runs.

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
        self,
        name: str,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None = None,
        state: State | None = None,
    ) -> Callable[[], Any]:
        """Return a callable without arguments to run a function on exactly these buffers as fast as possible.

        Change the contents of the inputs, call, and read the results: always the same arrays. Calls from several
        threads wait for each other; a nested call (for example by an extern) is a ``RuntimeError``.

        Bound calls of a function with states run on Python's machine: :meth:`run` is faster if the native machine runs
        the function.

        Args:
            name: the name of the function.
            inputs: every input, by name: C-contiguous and aligned arrays of the host, readable without conversion.
            out: buffers for some or all results, by name; the others are allocated once, here. A buffer must not
                overlap another array. No buffer lies on a device.
            state: the values kept from call to call; by default the state owned by the machine. Each call uses the
                present values, also after ``reset`` and ``load``.

        Returns:
            The callable, returning the result, or a tuple of all results unless there is exactly one.

        Raises:
            CallError: an unknown or missing name, an argument unfit or in need of a copy, an overlapping buffer, a
                result of a size only known after the run, or a size moving with the length of a state.
        """
        return self[name].bind(inputs, out, state)

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
