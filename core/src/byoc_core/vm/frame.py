"""Linked functions and their frames: what runs a verified program.

A frame holds the registers and the arena of one running call. Frames are pooled per function, so calls from
several threads never share one, and a call whose sizes are those of the frame's last call finds all its views made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from byoc_core.dims import evaluate, shape_symbols
from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError, ExecutionError, IRTypeError
from byoc_core.runtime.arguments import argument_places, as_input, bind_symbols, check_returned, concrete_shape
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm.control_flow import basic_blocks
from byoc_core.vm.disassemble import callee_name
from byoc_core.vm.instructions import Call, CallKind, If, Ret
from byoc_core.vm.program import ALIGNMENT, Program, VMFunction
from byoc_core.vm.views import ViewMaker

__all__ = ["Frame", "LinkedFunction", "Step", "picker"]

Sizes = dict[str, int]
Step = tuple[Callable[..., object], Callable[[list[Any]], tuple[Any, ...]], int]
"""One linked call: what to call, what picks its arguments out of the registers, and its instruction index."""


class _Block:
    """A basic block, linked: its calls, then where to go."""

    __slots__ = ("condition", "otherwise", "results", "steps", "target")

    def __init__(self) -> None:
        self.steps: tuple[Step, ...] = ()
        self.condition: int | None = None
        self.target: _Block = self
        self.otherwise: _Block = self
        self.results: tuple[int, ...] | None = None


class Frame:
    """Registers and arena of one running call.

    Attributes:
        registers: by number; one more, the last, holds the frame itself for calls that define registers.
        sizes: the input sizes for which the views are made; ``None`` before the first call.
        symbols: all sizes known so far in the running call, those learnt on the way included.
        result_types: shape and dtype of every result with a buffer; ``None`` for a dynamic one.
        fill_views: makes the views of what comes with a call; ``None`` where there are none.
    """

    __slots__ = ("_arena", "_linked", "fill_views", "registers", "result_types", "sizes", "symbols")

    def __init__(self, linked: LinkedFunction) -> None:
        self._linked = linked
        self._arena: NDArray = np.empty(0, np.uint8)
        self.registers: list[Any] = linked.initial_registers()
        self.registers.append(self)
        self.sizes: Sizes | None = None
        self.symbols: Sizes = {}
        self.result_types: list[tuple[tuple[int, ...], np.dtype[Any]] | None] = []
        self.fill_views: Callable[[list[Any]], None] | None = None

    def resize(self, sizes: Sizes) -> None:
        """Makes the views for these sizes; the arena grows where it has to, and stays otherwise.

        Raises:
            CallError: a size comes out negative or cannot be computed.
            ExecutionError: the arena does not fit into memory.
        """
        self.sizes = None
        linked = self._linked
        function = linked.function
        where = f"function `{function.name}`"
        self.result_types = [
            None if shape is None else (shape, to_numpy(spec.dtype))
            for spec, shape in zip(function.results, linked.result_shapes(sizes), strict=True)
        ]
        starts, total = [], 0
        for nbytes in function.storages:
            starts.append(total)
            try:
                total += -(-evaluate(nbytes, sizes) // ALIGNMENT) * ALIGNMENT
            except IRTypeError as error:
                raise CallError(where, f"size {nbytes} cannot be computed: {error.problem}") from error
        if total + ALIGNMENT > self._arena.nbytes:
            try:
                self._arena = np.empty(total + ALIGNMENT, np.uint8)
            except (MemoryError, ValueError, OverflowError) as error:
                raise ExecutionError(where, f"{total} bytes for intermediates cannot be allocated") from error
        base = -self._arena.ctypes.data % ALIGNMENT
        first = linked.first_tensor
        for index, tensor in enumerate(function.tensors):
            spec = TensorSpec(f"t{index}", tensor.dtype, tensor.shape)
            self.registers[first + index] = np.ndarray(
                concrete_shape(spec, sizes, f"{where}, register t{index}"),
                to_numpy(tensor.dtype),
                self._arena,
                base + starts[tensor.storage] + tensor.offset,
            )
        if linked.views is not None:
            self.fill_views = linked.views.prepare(self.registers, sizes)
        self.sizes = sizes

    def allocate(self, spec: TensorSpec) -> NDArray:
        """Gives a fresh buffer of the shape that a spec has for the symbols known now."""
        where = f"function `{self._linked.function.name}`, register {spec.name}"
        return np.empty(concrete_shape(spec, self.symbols, where), to_numpy(spec.dtype))

    def define(
        self,
        registers: Sequence[int],
        specs: Sequence[TensorSpec],
        returned: object,
        arguments: Sequence[NDArray] = (),
    ) -> None:
        """Checks returned values against their specs, learns the symbols they bind, and puts them into registers.

        A value that shares memory with one of the call's arguments, with the arena or with a value before it is
        copied: that memory is reused, is the caller's, or is another result.
        """
        for register in registers:
            for name in self._linked.binds(register):
                self.symbols.pop(name, None)
        where = f"function `{self._linked.function.name}`"
        arrays = check_returned(where, returned, specs, (self._arena, *arguments), self.symbols)
        for register, array in zip(registers, arrays, strict=True):
            self.registers[register] = array


class LinkedFunction:
    """A function of the program with everything it calls looked up.

    Args:
        program: the whole program.
        function: which one.
        constants: the program's constants, in order.
    """

    def __init__(self, program: Program, function: VMFunction, constants: Sequence[NDArray]) -> None:
        self.program = program
        self.function = function
        known = function.input_symbols
        self.early_results = tuple(shape_symbols(spec.shape) <= known for spec in function.results)
        self.first_constant = len(function.params) + len(function.results)
        self.first_tensor = self.first_constant + len(function.constants)
        self.first_dynamic = self.first_tensor + len(function.tensors)
        self.views = ViewMaker(program, function) if function.views else None
        self._constants = [constants[index] for index in function.constants]
        self._pool: list[Frame] = []
        self._entry = _Block()
        self._where = f"function `{function.name}`"
        self._dtypes = tuple(to_numpy(param.dtype) for param in function.params)
        self._places = argument_places(self._where, "input", function.params)
        # Shapes and sizes of the last call; replaced as a whole, so threads may read it at any time.
        self._shapes: tuple[Sizes, tuple[tuple[int, ...] | None, ...]] | None = None
        self._last: tuple[tuple[tuple[int, ...], ...], Sizes] | None = None

    def initial_registers(self) -> list[Any]:
        """Gives the registers of a new frame: the constants in place, all others empty."""
        registers: list[Any] = [None] * self.function.num_registers
        registers[self.first_constant : self.first_tensor] = self._constants
        return registers

    def binds(self, register: int) -> tuple[str, ...]:
        """Gives the symbols that a dynamic register binds."""
        return self.function.dynamics[register - self.first_dynamic].binds

    def link(self, steps: Sequence[Step | None]) -> None:
        """Puts the linked calls, one per instruction (``None`` for jumps), into blocks."""
        code = self.function.code
        plain = basic_blocks(code)
        blocks = [_Block() for _ in plain]
        for block, source in zip(blocks, plain, strict=True):
            block.steps = tuple(step for step in steps[source.start : source.stop] if step is not None)
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
        """Gives the inputs as arrays that the function may read, and the sizes of its symbols.

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
            else:
                return values, last[1]  # type: ignore[return-value]  # the loop has seen that all are arrays
        arrays = [
            as_input(value, spec, self._places[i]) for i, (value, spec) in enumerate(zip(values, params, strict=True))
        ]
        sizes = bind_symbols(params, arrays, self._places)
        self._last = (tuple(array.shape for array in arrays), sizes)
        return arrays, sizes

    def result_shapes(self, sizes: Sizes) -> tuple[tuple[int, ...] | None, ...]:
        """Gives the shapes of the results for known sizes; ``None`` for a dynamic one."""
        cached = self._shapes
        if cached is not None and cached[0] is sizes:
            return cached[1]
        shapes = tuple(
            concrete_shape(spec, sizes, f"{self._where}, result `{spec.name}`") if early else None
            for spec, early in zip(self.function.results, self.early_results, strict=True)
        )
        self._shapes = (sizes, shapes)
        return shapes

    def run(self, inputs: Sequence[NDArray], outputs: Sequence[NDArray | None] | None, sizes: Sizes) -> list[NDArray]:
        """Runs the function on checked inputs.

        Args:
            inputs: arrays that :meth:`accept` gave.
            outputs: a buffer per result, or ``None`` for a fresh one; ``None`` for all fresh.
            sizes: the sizes of the symbols.

        Returns:
            One array per result: the buffers, and whatever dynamic results there are.

        Raises:
            ExecutionError: something it calls failed; names function, instruction and symbol, and chains the cause.
        """
        try:
            frame = self._pool.pop()
        except IndexError:
            frame = Frame(self)
        if frame.sizes is not sizes and frame.sizes != sizes:
            frame.resize(sizes)
        registers = frame.registers
        num_params = len(self.function.params)
        registers[:num_params] = inputs
        try:
            registers[num_params : self.first_constant] = (
                [None if type_ is None else np.empty(*type_) for type_ in frame.result_types]
                if outputs is None
                else [
                    np.empty(*type_) if output is None and type_ is not None else output
                    for output, type_ in zip(outputs, frame.result_types, strict=True)
                ]
            )
        except (MemoryError, ValueError, OverflowError) as error:
            raise ExecutionError(self._where, "the results cannot be allocated") from error
        if frame.fill_views is not None:
            frame.fill_views(registers)
        if self.function.dynamics:
            frame.symbols = dict(sizes)
        index = 0
        block = self._entry
        try:
            while True:
                for function, arguments, index in block.steps:  # noqa: B007 - the handler below reads it
                    function(*arguments(registers))
                if block.results is not None:
                    return [registers[number] for number in block.results]
                block = block.target if block.condition is None or registers[block.condition] else block.otherwise
        except Exception as error:
            raise self._failure(index, error) from error
        finally:
            registers[: self.first_constant] = [None] * self.first_constant
            registers[self.first_dynamic : self.first_dynamic + len(self.function.dynamics)] = [None] * len(
                self.function.dynamics
            )
            if self.views is not None:
                self.views.clear(registers)
            self._pool.append(frame)

    def _failure(self, index: int, error: Exception) -> Exception:
        call = self.function.code[index]
        assert isinstance(call, Call)
        if call.kind is CallKind.FUNCTION and isinstance(error, ExecutionError):
            return error
        return ExecutionError(
            f"{self._where}, instruction {index} ({call.kind.mnemonic} `{callee_name(self.program, call)}`)",
            f"failed with {type(error).__name__}: {error}",
        )


def picker(registers: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Gives a function that picks these registers, in order, as a tuple."""
    if len(registers) == 1:
        (only,) = registers
        return lambda values: (values[only],)
    return itemgetter(*registers)
