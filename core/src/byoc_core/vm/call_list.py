"""A function's native calls as one list that the C extension runs in one go.

Every instruction that machine code can do (a call of a function with a :class:`NativeEntry`, builtins that fill
buffers, jumps) is an entry of the list; the others are left to Python, and the list goes on behind them. A function
is *whole* where the sizes of its inputs tell all others: the extension then checks the arguments, computes sizes, makes
the results, and calls what is left to Python with arrays of its own making.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from byoc_core.dims import Dim, shape_symbols
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.runtime.module import NativeEntry, NDArray
from byoc_core.vm.arena import ArenaLayout, no_memory
from byoc_core.vm.instructions import Builtin, Call, CallKind, Goto, If, Instruction, Ret
from byoc_core.vm.program import Program, RegisterKind, VMFunction
from byoc_core.vm.size_table import SizeTable, symbol_sources
from byoc_core.vm.step import Step

if TYPE_CHECKING:
    from byoc_core._native import Code, Frame, Plan, _Instruction, _Register

__all__ = ["CallList", "has_native_calls"]

_BUILTINS = {
    Builtin.COPY: "COPY",
    Builtin.ZERO: "ZERO",
    Builtin.INCREMENT: "INCREMENT",
    Builtin.LOOP_TEST: "LOOP_TEST",
}


def has_native_calls(entries: Sequence[NativeEntry | None]) -> bool:
    """Tells whether a list is worth it."""
    return any(entry is not None for entry in entries)


class CallList:
    """The list of one function, and the frames it runs in.

    Args:
        extension: the module ``byoc_core._native``.
        program: the whole program.
        function: which function of it.
        steps: for each instruction how Python does it, ``None`` for jumps.
        entries: for each instruction, what it calls, ``None`` where that is nothing native.
        constants: the function's constants.
        early_results: for each result, whether its size is known before the function runs.
        fail: called with an instruction and the status that its function returned, in the thread it failed in, or the
            exception that Python's step raised; raises.
        num_threads: how many threads a call wants, 0 for the number of the process; ``None``: nothing uses threads.

    Attributes:
        is_whole: the extension makes the whole call.
    """

    def __init__(
        self,
        extension: ModuleType,
        program: Program,
        function: VMFunction,
        steps: Sequence[Step | None],
        entries: Sequence[NativeEntry | None],
        constants: Sequence[NDArray],
        early_results: Sequence[bool],
        fail: Callable[[int, int | Exception], object],
        num_threads: int | None,
    ) -> None:
        self._native = extension
        self._function = function
        self._registers = program.registers(function)
        self._constants = tuple(constants)
        self._early_results = tuple(early_results)
        self._where = f"function `{function.name}`"
        self._table = SizeTable(extension, sorted(self._symbols()))
        self._sources = symbol_sources(function.params, self._table.symbols)
        pairs = list(zip(function.code, steps, strict=True))
        self.is_whole = (
            self._sources is not None and all(early_results) and all(self._is_whole(*pair) for pair in pairs)
        )
        instructions = tuple(
            self._instruction(instruction, step, entry)
            for instruction, step, entry in zip(function.code, steps, entries, strict=True)
        )
        registers = tuple(map(self._register, range(len(self._registers))))
        storages = self._table.numbers(function.storages)
        self._code: Code = extension.Code(
            instructions,
            registers,
            (len(self._table.symbols), tuple(self._table.operations), storages),
            fail,
            -1 if num_threads is None else num_threads,
        )
        self._plan: Plan | None = None
        if self.is_whole:
            num_arguments = len(function.params), len(function.results)
            self._plan = extension.Plan(self._code, *num_arguments, self._sources, self.new_frame)

    def prepare(self) -> None:
        """Makes the frame for the first call of a whole function without symbols."""
        assert self._plan is not None
        self._plan.prepare()

    def make_entry(self, fallback: Callable[..., Any]) -> Callable[..., Any]:
        """Gives a whole function as it is called by position.

        Args:
            fallback: is called with arguments that are not as they should be.
        """
        entry: Callable[..., Any] = self._native.Entry(self._plan, fallback)
        return entry

    def run(self, inputs: list[Any], outputs: list[Any]) -> NDArray | tuple[NDArray, ...] | None:
        """Runs a whole function on any arguments; ``None`` for an output stands for a new array.

        Returns:
            The result, or a tuple of all where there is not exactly one. ``None`` where Python has to run it: an
            argument is not as it should be, say, or an output overlaps another array.
        """
        assert self._plan is not None
        return self._plan.run(inputs, outputs)

    def bind(
        self, inputs: Sequence[NDArray], outputs: Sequence[NDArray], layout: ArenaLayout, sizes: Mapping[str, int]
    ) -> Callable[[], Any]:
        """Gives a callable that runs a whole function on these arrays each time, and gives the result.

        Raises:
            ExecutionError: there is no memory for intermediates.
        """
        frame = self.new_frame()
        self.lay_out(frame, layout, sizes)
        results = outputs[0] if len(outputs) == 1 else tuple(outputs)
        bound: Callable[[], Any] = self._native.Bound(frame, (*inputs, *outputs), results)
        return bound

    def new_frame(self) -> Frame:
        """Gives the memory of one call."""
        frame: Frame = self._native.Frame(self._code)
        return frame

    def lay_out(self, frame: Frame, layout: ArenaLayout, sizes: Mapping[str, int]) -> None:
        """Gives the registers of a frame their shapes and places; parameters and results point nowhere yet.

        Args:
            frame: that :meth:`new_frame` gave.
            layout: the arena for these sizes.
            sizes: of the symbols that the inputs bind.

        Raises:
            ExecutionError: the arena does not fit into memory.
        """
        if not frame.lay_out(tuple([sizes.get(name, 0) for name in self._table.symbols])):
            raise no_memory(layout, self._where)

    def _symbols(self) -> frozenset[str]:
        """Gives the symbols of all registers that have memory before the function runs, and of its storages."""
        placed = [register.shape for number, register in enumerate(self._registers) if self._is_placed(number)]
        views = [(view.offset, *(view.strides or ())) for view in self._function.views]
        return shape_symbols(dim for dims in (*placed, *views, self._function.storages) for dim in dims)

    def _register(self, number: int) -> _Register | None:
        """Gives what is known of a register before a call; ``None`` where it has no memory then."""
        if not self._is_placed(number):
            return None
        register, native = self._registers[number], self._native
        info = dtype_info(register.dtype)
        element = int(info.dl_code), info.bits, info.itemsize, to_numpy(register.dtype)
        shape: Sequence[Dim] = register.shape
        strides: Sequence[Dim] | None = None
        home = 0
        offset: Dim = 0
        array: NDArray | None = None
        match register.kind:
            case RegisterKind.PARAM if self._sources is None:
                # Its sizes may stay unknown. Nobody asks: it takes the shape of the array that it is pointed to.
                place, shape = native.ARGUMENT, (0,) * len(shape)
            case RegisterKind.CONSTANT:
                place, array = native.CONSTANT, self._constants[register.index]
            case RegisterKind.TENSOR:
                tensor = self._function.tensors[register.index]
                place, home, offset = native.TENSOR, tensor.storage, tensor.offset
            case RegisterKind.VIEW:
                view = self._function.views[register.index]
                place, home, offset = native.VIEW, view.base, view.offset
                strides = None if view.is_compact else view.strides
            case _:
                place = native.ARGUMENT
        table = self._table
        numbers = table.numbers(shape), None if strides is None else table.numbers(strides), table.number(offset)
        return (place, home, *element, *numbers, array)

    def _is_whole(self, instruction: Instruction, step: Step | None) -> bool:
        """Tells whether the extension can do an instruction, or call what does it."""
        match instruction:
            case If(condition=condition):
                return self._is_placed(condition)
            case Call(kind=CallKind.EXTERN):
                assert step is not None
                return all(map(self._is_placed, step.registers))
            case Call(kind=CallKind.BUILTIN, args=args, results=results):
                return instruction.callee in _BUILTINS and all(map(self._is_placed, (*args, *results)))
        return not isinstance(instruction, Call)

    def _instruction(self, instruction: Instruction, step: Step | None, entry: NativeEntry | None) -> _Instruction:
        native = self._native
        call = step.function if step is not None and self.is_whole else None
        match instruction:
            case Ret():
                return native.RET, (), 0, 0, 0, None
            case Goto(target=target):
                return native.GOTO, (), target, 0, 0, None
            case If(condition=condition, otherwise=target) if self._is_placed(condition):
                return native.IF, (condition,), target, 0, 0, None
            case Call(args=args, results=results) if all(map(self._is_placed, (*args, *results))):
                if entry is not None:
                    return native.CALL, (*args, *results), 0, entry.function, entry.context, None
                if instruction.kind is CallKind.BUILTIN and instruction.callee in _BUILTINS:
                    operation = getattr(native, _BUILTINS[Builtin(instruction.callee)])
                    return operation, (*args, *results), 0, 0, 0, call
        if call is None or step is None:
            return native.PYTHON, (), 0, 0, 0, None
        return native.PYTHON, step.registers, 0, 0, 0, call

    def _is_placed(self, number: int) -> bool:
        """Tells whether a register has memory before the function runs."""
        register = self._registers[number]
        if register.kind is RegisterKind.VIEW:
            return self._is_placed(self._function.views[register.index].base)
        if register.kind is RegisterKind.RESULT:
            return self._early_results[register.index]
        return register.kind is not RegisterKind.DYNAMIC
