"""A function's native calls in a list, executed by the C extension in a single run.

Every instruction supported by machine code (a call of a function with a :class:`NativeEntry`, builtins filling buffers,
jumps) is an entry of the list. The other instructions are left to Python, and the list continues after each. A list is
*complete* if the sizes of the function's inputs determine all other sizes. With a complete list, the extension checks
the arguments, computes sizes, makes the results, and runs Python's instructions on arrays made by the extension.

The tuples of entries and registers have the form read by ``csrc/code.c`` and described in ``_native.pyi``.
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
    """Return whether a call list is worthwhile."""
    return any(entry is not None for entry in entries)


class CallList:
    """The call list of a function, and the frames for running the list.

    Args:
        extension: the module ``byoc_core._native``.
        program: the whole program.
        function: the function of the program.
        steps: for each instruction the step executed by Python, ``None`` for jumps.
        entries: for each instruction the native entry to call, ``None`` if not native.
        constants: the function's constants.
        early_results: for each result, whether its size is known before the function runs.
        fail: called with an instruction and the status returned by its function, in the failing thread, or the
            exception raised by Python's step; raises.
        num_threads: the number of threads requested by a call, 0 for the number of the process; ``None``: no
            instruction uses threads.
        record: receives the record of each run, or of each piece of a run of an incomplete list.

    Attributes:
        is_complete: whether the extension makes the whole call, not only parts.
        has_python_steps: whether Python runs an instruction in each call.
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
        record: Callable[[object], object] | None = None,
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
        # Set before the instructions are made: only a complete list gives Python's steps to the extension.
        self.is_complete = (
            self._sources is not None and all(early_results) and all(self._can_execute(*pair) for pair in pairs)
        )
        instructions = tuple(
            self._instruction(instruction, step, entry)
            for instruction, step, entry in zip(function.code, steps, entries, strict=True)
        )
        self.has_python_steps = any(operation == extension.PYTHON for operation, *_ in instructions)
        # Numbering the sizes of registers and storages fills the table: the operations are read only afterwards.
        registers = tuple(map(self._register, range(len(self._registers))))
        storages = self._table.numbers(function.storages)
        self._code: Code = extension.Code(
            instructions,
            registers,
            (len(self._table.symbols), tuple(self._table.operations), storages),
            fail,
            -1 if num_threads is None else num_threads,
            record,
        )
        self._plan: Plan | None = None
        if self.is_complete:
            num_arguments = len(function.params), len(function.results)
            states = tuple((state.result, state.param) for state in function.states)
            self._plan = extension.Plan(self._code, *num_arguments, self._sources, self.new_frame, states)

    def prepare(self) -> None:
        """Allocate the frame for the first call of a function without symbols; the list is complete."""
        assert self._plan is not None
        self._plan.prepare()

    def make_entry(self, fallback: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of a complete list as a callable with positional arguments.

        Args:
            fallback: called with arguments unfit for the extension: invalid, or in need of conversion.
        """
        entry: Callable[..., Any] = self._native.Entry(self._plan, fallback)
        return entry

    def run(self, inputs: list[Any], outputs: list[Any]) -> NDArray | tuple[NDArray, ...] | None:
        """Run a complete list on any arguments; ``None`` for an output requests a new array.

        Returns:
            The result, or a tuple of all results if there is not exactly one. ``None`` if Python has to run the
            function, for example because an argument is invalid or needs conversion, or an output overlaps another
            array.
        """
        assert self._plan is not None
        return self._plan.run(inputs, outputs)

    def bind(
        self, inputs: Sequence[NDArray], outputs: Sequence[NDArray], layout: ArenaLayout, sizes: Mapping[str, int]
    ) -> Callable[[], Any]:
        """Return a callable to run a complete list on these arrays repeatedly, each time returning the result.

        Raises:
            ExecutionError: there is no memory for intermediates.
        """
        frame = self.new_frame()
        self.lay_out(frame, layout, sizes)
        results = outputs[0] if len(outputs) == 1 else tuple(outputs)
        bound: Callable[[], Any] = self._native.Bound(frame, (*inputs, *outputs), results)
        return bound

    def new_frame(self) -> Frame:
        """Allocate the memory of a call."""
        frame: Frame = self._native.Frame(self._code)
        return frame

    def lay_out(self, frame: Frame, layout: ArenaLayout, sizes: Mapping[str, int]) -> None:
        """Set the shapes and addresses of a frame's registers; parameters and results still have no address.

        Args:
            frame: a frame of :meth:`new_frame`.
            layout: the arena for these sizes.
            sizes: sizes of the symbols bound by the inputs.

        Raises:
            ExecutionError: the arena does not fit into memory.
        """
        if not frame.lay_out(tuple([sizes.get(name, 0) for name in self._table.symbols])):
            raise no_memory(layout, self._where)

    def _symbols(self) -> frozenset[str]:
        """Return the symbols of the function's storages, and of all registers with memory before the run."""
        shapes = [register.shape for number, register in enumerate(self._registers) if self._has_memory(number)]
        views = [(view.offset, *(view.strides or ())) for view in self._function.views]
        return shape_symbols(dim for dims in (*shapes, *views, self._function.storages) for dim in dims)

    def _register(self, number: int) -> _Register | None:
        """Return the facts about a register known before a call; ``None`` if the register has no memory then."""
        if not self._has_memory(number):
            return None
        register, native = self._registers[number], self._native
        info = dtype_info(register.dtype)
        element = int(info.dl_code), info.bits, info.itemsize, to_numpy(register.dtype)
        shape: Sequence[Dim] = register.shape
        strides: Sequence[Dim] | None = None
        owner = 0
        offset: Dim = 0
        array: NDArray | None = None
        match register.kind:
            case RegisterKind.PARAM if self._sources is None:
                # The sizes may stay unknown and are never used: the register takes the shape of its array.
                memory_kind, shape = native.ARGUMENT, (0,) * len(shape)
            case RegisterKind.CONSTANT:
                memory_kind, array = native.CONSTANT, self._constants[register.index]
            case RegisterKind.TENSOR:
                tensor = self._function.tensors[register.index]
                memory_kind, owner, offset = native.TENSOR, tensor.storage, tensor.offset
            case RegisterKind.VIEW:
                view = self._function.views[register.index]
                memory_kind, owner, offset = native.VIEW, view.base, view.offset
                strides = None if view.is_compact else view.strides
            case _:
                memory_kind = native.ARGUMENT
        table = self._table
        numbers = table.numbers(shape), None if strides is None else table.numbers(strides), table.number(offset)
        return (memory_kind, owner, *element, *numbers, array)

    def _can_execute(self, instruction: Instruction, step: Step | None) -> bool:
        """Return whether the extension can execute an instruction, or call Python's step for it."""
        match instruction:
            case If(condition=condition):
                return self._has_memory(condition)
            case Call(kind=CallKind.EXTERN):
                assert step is not None
                return all(map(self._has_memory, step.registers))
            case Call(kind=CallKind.BUILTIN, args=args, results=results):
                return instruction.callee in _BUILTINS and all(map(self._has_memory, (*args, *results)))
        return not isinstance(instruction, Call)

    def _instruction(self, instruction: Instruction, step: Step | None, entry: NativeEntry | None) -> _Instruction:
        native = self._native
        call = step.function if step is not None and self.is_complete else None
        match instruction:
            case Ret():
                return native.RET, (), 0, 0, 0, None
            case Goto(target=target):
                return native.GOTO, (), target, 0, 0, None
            case If(condition=condition, otherwise=target) if self._has_memory(condition):
                return native.IF, (condition,), target, 0, 0, None
            case Call(args=args, results=results) if all(map(self._has_memory, (*args, *results))):
                if entry is not None:
                    return native.CALL, (*args, *results), 0, entry.function, entry.context, None
                if instruction.kind is CallKind.BUILTIN and instruction.callee in _BUILTINS:
                    operation = getattr(native, _BUILTINS[Builtin(instruction.callee)])
                    # Python's step runs if the extension refuses a copy, for example between unequal shapes.
                    return operation, (*args, *results), 0, 0, 0, call
        # The list stops here, and Python runs the instruction. Its registers may have no memory, so none are named.
        if call is None or step is None:
            return native.PYTHON, (), 0, 0, 0, None
        return native.PYTHON, step.registers, 0, 0, 0, call

    def _has_memory(self, number: int) -> bool:
        """Return whether a register has memory before the function runs."""
        register = self._registers[number]
        if register.kind is RegisterKind.VIEW:
            return self._has_memory(self._function.views[register.index].base)
        if register.kind is RegisterKind.RESULT:
            return self._early_results[register.index]
        return register.kind is not RegisterKind.DYNAMIC
