"""Linked functions: the executable form of a verified program.

A frame holds the registers and the arena of a running call. Frames are pooled per function: calls from several threads
never share a frame, and a call with the sizes of the frame's last call finds all its views made. With the C extension,
native calls go through a list of calls (:mod:`byoc_core.vm.call_list`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc_core.dims import shape_symbols
from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError, ExecutionError
from byoc_core.native.loader import failure_of
from byoc_core.runtime.arguments import (
    BOOL,
    argument_places,
    bind_symbols,
    concrete_shape,
    has_clean_bools,
)
from byoc_core.runtime.extension import extension
from byoc_core.runtime.module import NativeEntry, NDArray
from byoc_core.runtime.parts import record_call
from byoc_core.runtime.threads import enter_call, leave_call
from byoc_core.vm.arena import ArenaLayout, lay_out
from byoc_core.vm.bound_call import BoundCall
from byoc_core.vm.call_list import CallList, has_native_calls
from byoc_core.vm.control_flow import basic_blocks
from byoc_core.vm.device_run import DeviceRun, MachineDevices
from byoc_core.vm.device_values import DeviceValues, ResultTypes
from byoc_core.vm.disassemble import callee_name
from byoc_core.vm.frame import Frame, Sizes
from byoc_core.vm.instructions import Call, CallKind, If, Ret
from byoc_core.vm.program import HOST, Program, VMFunction
from byoc_core.vm.step import WAIT, Step
from byoc_core.vm.views import ViewMaker

if TYPE_CHECKING:
    from byoc_core._native import Frame as NativeFrame

__all__ = ["LinkedFunction", "Record"]

Record = Callable[[str, object], object]
"""Receives the name of a function and the record of a run; see :class:`byoc_core.VirtualMachine`."""


class _Block:
    """A linked basic block: its calls, then the next block."""

    __slots__ = ("condition", "otherwise", "results", "steps", "target")

    def __init__(self) -> None:
        self.steps: tuple[Step, ...] = ()
        self.condition: int | None = None
        self.target: _Block = self
        self.otherwise: _Block = self
        self.results: tuple[int, ...] | None = None


class LinkedFunction:
    """A function of the program with all callees resolved.

    Args:
        program: the whole program.
        function: the function of the program.
        constants: the program's constants, in order.
        runtimes: for each external symbol of the program, the runtime defining the symbol; ``None`` for none.
        num_threads: the number of threads requested by a call, 0 for the number of the process; ``None``: no call uses
            threads.
        record: receives the function's name and the record of each run; ``None``: nothing is measured.
        devices: the devices of the machine; ``None`` if all memory is the host's.
    """

    def __init__(
        self,
        program: Program,
        function: VMFunction,
        constants: Sequence[NDArray],
        runtimes: Sequence[str | None],
        num_threads: int | None,
        record: Record | None = None,
        devices: MachineDevices | None = None,
    ) -> None:
        self.program = program
        self._record = None if record is None else partial(record, function.name)
        self._runtimes = runtimes
        self.function = function
        self._num_threads = num_threads
        input_symbols = function.input_symbols
        self.early_results = tuple(shape_symbols(spec.shape) <= input_symbols for spec in function.results)
        self.first_constant = len(function.params) + len(function.results)
        self.first_tensor = self.first_constant + len(function.constants)
        self.first_dynamic = self.first_tensor + len(function.tensors)
        self.views = ViewMaker(program, function) if function.views else None
        self.devices = devices if function.domains else None
        self.device_values = DeviceValues(program, function, self.devices)
        self._constants = [constants[index] for index in function.constants]
        self._pool: list[Frame] = []
        self._entry = _Block()
        self._steps: Sequence[Step | None] = ()
        self._native_entries: Sequence[NativeEntry | None] = ()
        self.call_list: CallList | None = None
        self._where = f"function `{function.name}`"
        self._names = tuple(spec.name for spec in function.params), tuple(spec.name for spec in function.results)
        self._dtypes = tuple(to_numpy(param.dtype) for param in function.params)
        self._input_locations = argument_places(self._where, "input", function.params)
        # Facts about the last call; each is replaced as a whole, therefore threads may read at any time.
        self._results: tuple[Sizes, tuple[tuple[tuple[int, ...], np.dtype[Any]] | None, ...]] | None = None
        self._last: tuple[tuple[tuple[int, ...], ...], Sizes] | None = None
        self._layout: tuple[Sizes, ArenaLayout] | None = None

    def initial_registers(self) -> list[Any]:
        """Return the registers of a new frame: the constants in place, all others empty."""
        registers: list[Any] = [None] * self.function.num_registers
        registers[self.first_constant : self.first_tensor] = self._constants
        if self.devices is not None:
            for number, constant in enumerate(self.function.constants, start=self.first_constant):
                domain = self.function.domain_of(number)
                if domain != HOST:
                    registers[number] = self.devices.constant(constant, domain)
        return registers

    def new_device_run(self) -> DeviceRun | None:
        """Return the memory and streams of devices for a new frame; ``None`` if all memory is the host's."""
        return None if self.devices is None else DeviceRun(self.devices, self._where, self._describe)

    def binds(self, register: int) -> tuple[str, ...]:
        """Return the symbols bound by a dynamic register."""
        return self.function.dynamics[register - self.first_dynamic].binds

    def link(
        self,
        steps: Sequence[Step | None],
        entries: Sequence[NativeEntry | None],
        waits: Sequence[Step | None] = (),
        *,
        native: bool,
    ) -> None:
        """Group the linked calls into blocks, and make a list of native calls if worthwhile.

        Args:
            steps: one for each instruction; ``None`` for jumps.
            entries: for each instruction the native entry to call, ``None`` if not native.
            waits: for each instruction the step waiting for devices before the instruction, ``None`` without a wait;
                empty if all memory is the host's.
            native: whether native calls may run in a single run of the C extension. A function with memory of devices
                runs in Python: the extension knows the host's memory alone.
        """
        code = self.function.code
        self._steps = steps
        self._native_entries = entries
        module = extension() if native and self.devices is None and has_native_calls(entries) else None
        if module is not None:
            self.call_list = CallList(
                module,
                self.program,
                self.function,
                steps,
                entries,
                self._constants,
                self.early_results,
                self._fail,
                self._num_threads,
                self._record,
            )
        if self._record is not None and not (self.call_list and self.call_list.is_complete):
            steps = [None if step is None else _recorded(step, self._record) for step in steps]
            self._steps = steps
        basic = basic_blocks(code)
        blocks = [_Block() for _ in basic]
        if waits:
            pairs = list(zip(waits, steps, strict=True))
            steps_at = [tuple(step for step in pair if step is not None) for pair in pairs]
        else:
            steps_at = [() if step is None else (step,) for step in steps]
        for block, source in zip(blocks, basic, strict=True):
            block.steps = tuple(step for found in steps_at[source.start : source.stop] for step in found)
            match code[source.stop - 1]:
                case Ret(values=values):
                    block.results = values
                case If(condition=condition):
                    block.condition = condition
                    block.target, block.otherwise = (blocks[number] for number in source.successors)
                case _:
                    block.target = blocks[source.successors[0]]
        self._entry = blocks[0]

    def accept(self, values: Sequence[object]) -> tuple[Sequence[NDArray], Sizes]:
        """Return the inputs as arrays readable by the function, and the sizes of its symbols.

        Raises:
            CallError: wrong count, dtype, rank or shape; names function and argument.
        """
        params = self.function.params
        if len(values) != len(params):
            raise CallError(
                self._where,
                "wrong number of inputs",
                got=len(values),
                expected=f"{len(params)} ({', '.join(param.name for param in params)})" if params else "none",
            )
        last = self._last
        if last is not None:
            for value, dtype, shape in zip(values, self._dtypes, last[0], strict=True):
                if type(value) is not np.ndarray or value.shape != shape or value.dtype != dtype:
                    break
                flags = value.flags
                if not (flags.c_contiguous and flags.aligned):
                    break
                if dtype is BOOL and not has_clean_bools(value):
                    break
            else:
                return values, last[1]  # type: ignore[return-value]  # the loop has checked for arrays
        arrays = [
            self.device_values.accept_input(value, spec, self._input_locations[i])
            for i, (value, spec) in enumerate(zip(values, params, strict=True))
        ]
        sizes = bind_symbols(params, arrays, self._input_locations)
        self._last = (tuple(array.shape for array in arrays), sizes)
        return arrays, sizes

    def result_types(self, sizes: Sizes) -> ResultTypes:
        """Return shape and dtype of each result for known sizes; ``None`` for a dynamic result."""
        cached = self._results
        if cached is not None and cached[0] is sizes:
            return cached[1]
        types = tuple(
            (concrete_shape(spec, sizes, f"{self._where}, result `{spec.name}`"), to_numpy(spec.dtype))
            if early
            else None
            for spec, early in zip(self.function.results, self.early_results, strict=True)
        )
        self._results = (sizes, types)
        return types

    def layout(self, sizes: Sizes) -> ArenaLayout:
        """Return the placement of the planned tensors for known sizes.

        Raises:
            CallError: a size comes out negative or cannot be computed.
        """
        cached = self._layout
        if cached is not None and (cached[0] is sizes or cached[0] == sizes):
            return cached[1]
        program = None if self.devices is None else self.program
        try:
            layout = lay_out(self.function, sizes, self.views, program)
        except CallError:
            self.result_types(sizes)  # a result of a negative size is an error with the name of the result
            raise
        self._layout = (sizes, layout)
        return layout

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None, sizes: Sizes) -> list[Any]:
        """Run the function on checked inputs.

        Args:
            inputs: arrays returned by :meth:`accept`.
            outputs: a buffer per result, or ``None`` for a fresh buffer; ``None`` for all fresh.
            sizes: the sizes of the symbols.

        Returns:
            One array per result: the buffers, and any dynamic results.

        Raises:
            ExecutionError: a callee failed; names function, instruction and symbol, and chains the cause.
        """
        calls = self.call_list
        if calls is not None and calls.is_complete:
            returned = calls.run([*inputs], [*outputs] if outputs else [None] * len(self.function.results))
            if returned is not None:
                return list(returned) if isinstance(returned, tuple) else [returned]
        return self._run_in_frame(inputs, outputs, sizes)

    def prepare(self) -> None:
        """Make the layout, the frame and the list's plan before the first call, if no size is left open.

        Only calls touch an arena. Failures here are left to the call, for an exact error.
        """
        params = self.function.params
        shapes = tuple(tuple(dim for dim in param.shape if isinstance(dim, int)) for param in params)
        if any(len(shape) < len(param.shape) for shape, param in zip(shapes, params, strict=True)):
            return
        calls = self.call_list
        if calls is not None and calls.is_complete:
            calls.prepare()
            return
        sizes: Sizes = {}
        try:
            self.result_types(sizes)
            frame = Frame(self)
            frame.resize(sizes)
            frame.release()
            self._pool.append(frame)
        except (CallError, ExecutionError):
            return
        self._last = shapes, sizes

    def make_entry(self, fallback: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as a callable with positional arguments.

        Args:
            fallback: checks any arguments and calls :meth:`run`.
        """
        calls = self.call_list
        return calls.make_entry(fallback) if calls is not None and calls.is_complete else fallback

    def run_in_extension(
        self, inputs: Mapping[str, object], outputs: Mapping[str, object]
    ) -> NDArray | tuple[NDArray, ...] | None:
        """Run the function on named arrays in the C extension; return ``None`` if Python has to run the function."""
        calls = self.call_list
        if calls is None or not calls.is_complete or type(inputs) is not dict or type(outputs) is not dict:
            return None
        names, out_names = self._names
        try:
            if len(inputs) != len(names) or len(outputs) != len(out_names):
                return None
            arrays, buffers = [inputs[name] for name in names], [outputs[name] for name in out_names]
        except KeyError:
            return None  # the check of names reports the error
        for buffer in buffers:  # a generator for `any` takes longer than everything else here
            if buffer is None:
                return None
        return calls.run(arrays, buffers)

    def bind(self, inputs: Sequence[NDArray], outputs: Sequence[NDArray], sizes: Sizes) -> Callable[[], Any]:
        """Return a callable to run the function on these arrays repeatedly, each time returning the result.

        Args:
            inputs: arrays readable by the function without conversion.
            outputs: one array per result, without overlap with any other array.
            sizes: the sizes of the symbols.
        """
        layout = self.layout(sizes)
        calls = self.call_list
        if calls is not None and calls.is_complete:
            return calls.bind(inputs, outputs, layout, sizes)
        results = outputs[0] if len(outputs) == 1 else tuple(outputs)
        return BoundCall(lambda: self._run_in_frame(inputs, outputs, sizes), results)

    def result_buffers(self, outputs: Sequence[NDArray | None] | None, sizes: Sizes) -> list[NDArray]:
        """Return a buffer for each result, fresh unless given; ``None`` for a dynamic result."""
        types = self.result_types(sizes)
        try:
            buffers = (
                [None if type_ is None else np.empty(*type_) for type_ in types]
                if outputs is None
                else [
                    np.empty(*type_) if output is None and type_ is not None else output
                    for output, type_ in zip(outputs, types, strict=True)
                ]
            )
        except (MemoryError, ValueError, OverflowError) as error:
            raise ExecutionError(self._where, "the results cannot be allocated") from error
        return buffers  # type: ignore[return-value]  # the entry of a dynamic result is never read

    def _run_in_frame(
        self, inputs: Sequence[NDArray], outputs: Sequence[NDArray | None] | None, sizes: Sizes
    ) -> list[NDArray]:
        try:
            frame = self._pool.pop()
        except IndexError:
            frame = Frame(self)
        if frame.sizes is not sizes and frame.sizes != sizes:
            try:
                frame.resize(sizes)
            except BaseException:
                self._pool.append(frame)  # with its memory, for calls of other sizes
                raise
        registers = frame.registers
        num_params = len(self.function.params)
        registers[:num_params] = inputs
        registers[num_params : self.first_constant] = self.result_buffers(outputs, sizes)
        placed = None
        if self.devices is not None:
            placed = self.device_values.place_arguments(frame, self.layout(sizes), self.result_types(sizes))
        if frame.fill_views is not None:
            frame.fill_views(registers)
        if self.function.dynamics:
            frame.symbols = dict(sizes)
        token = None if self._num_threads is None else enter_call(self._num_threads)
        try:
            return self._run_blocks(registers) if frame.native is None else self._run_calls(registers, frame.native)
        finally:
            if token is not None:
                leave_call(token)
            if placed is not None:
                placed.restore(registers)
            registers[: self.first_constant] = [None] * self.first_constant
            registers[self.first_dynamic : self.function.first_view] = [None] * len(self.function.dynamics)
            if self.views is not None:
                self.views.clear(registers)
            frame.release()
            self._pool.append(frame)

    def _run_blocks(self, registers: list[Any]) -> list[NDArray]:
        """Run all steps in Python."""
        index = 0
        block = self._entry
        try:
            while True:
                for function, pick, index, _ in block.steps:  # noqa: B007 - the handler below reads it
                    function(*pick(registers))
                if block.results is not None:
                    return [registers[number] for number in block.results]
                block = block.target if block.condition is None or registers[block.condition] else block.otherwise
        except Exception as error:
            failure = self._failure(index, error)
            if failure is error:
                raise
            raise failure from error

    def _run_calls(self, registers: list[Any], native: NativeFrame) -> list[NDArray]:
        """Run the list of native calls, and the remaining steps in Python."""
        native.point(0, registers[: self.first_constant])
        code, steps = self.function.code, self._steps
        index = native.run(0)
        while True:
            step = steps[index]
            if step is not None:
                try:
                    step.function(*step.pick(registers))
                except Exception as error:
                    raise self._failure(index, error) from error
                index = native.run(index + 1)
                continue
            match code[index]:
                case Ret(values=values):
                    return [registers[number] for number in values]
                case If(condition=condition, otherwise=target):
                    index = native.run(index + 1 if registers[condition] else target)

    def _fail(self, index: int, reason: int | Exception) -> None:
        """Raise the error of a call after a failure status or an exception."""
        if isinstance(reason, Exception):
            raise self._failure(index, reason) from reason
        entry, call = self._native_entries[index], self.function.code[index]
        assert entry is not None
        assert isinstance(call, Call)
        error = failure_of(callee_name(self.program, call), entry.explain(reason))
        raise self._failure(index, error) from error

    def _failure(self, index: int, error: Exception) -> Exception:
        if index == WAIT and isinstance(error, ExecutionError):
            return error
        call = self.function.code[index]
        assert isinstance(call, Call)
        if call.kind is CallKind.FUNCTION and isinstance(error, ExecutionError):
            return error
        return ExecutionError(f"{self._where}, {self._describe(index)}", f"failed with {type(error).__name__}: {error}")

    def _describe(self, index: int) -> str:
        """Return an instruction and its callee in words."""
        call = self.function.code[index]
        assert isinstance(call, Call)
        is_extern = call.kind in (CallKind.EXTERN, CallKind.PACKED)
        runtime = self._runtimes[call.callee] if is_extern else None
        callee = f"`{callee_name(self.program, call)}`" + (f" of runtime `{runtime}`" if runtime else "")
        return f"instruction {index} ({call.kind.mnemonic} {callee})"


def _recorded(step: Step, record: Callable[[object], object]) -> Step:
    """Return a step that passes on the record of each call."""

    def call(*arguments: object) -> None:
        _, recorded = record_call(step.instruction, step.function, arguments)
        record(recorded)

    return step._replace(function=call)
