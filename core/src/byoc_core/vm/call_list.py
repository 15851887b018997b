"""A function's native calls as one list that the C extension runs in one go.

Every instruction that machine code can do (a call of a function with a :class:`NativeEntry`, builtins that fill
buffers, jumps) is an entry of the list; the others are left to Python, and the list goes on behind them. A function
without any such instruction is *whole*: a call of it is one native call, which checks the arguments and makes
the results too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.runtime.module import NativeEntry, NDArray
from byoc_core.vm.arena import ArenaLayout, new_arena, start_of
from byoc_core.vm.instructions import Builtin, Call, CallKind, Goto, If, Instruction, Ret
from byoc_core.vm.program import ALIGNMENT, Program, Register, RegisterKind, VMFunction

if TYPE_CHECKING:
    from byoc_core._native import Code, Entry, Frame, Plan, _Register

__all__ = ["CallList", "has_native_calls"]

_Shapes = tuple[tuple[int, ...], ...]
_BUILTINS = {
    Builtin.COPY: "COPY",
    Builtin.ZERO: "ZERO",
    Builtin.INCREMENT: "INCREMENT",
    Builtin.LOOP_TEST: "LOOP_TEST",
}


def has_native_calls(entries: Sequence[NativeEntry | None]) -> bool:
    """Tells whether a list is worth it."""
    return any(entry is not None for entry in entries)


def _element(register: Register) -> tuple[int, int, int]:
    """Gives DLPack's code and bits of a register's elements, and their bytes in memory."""
    info = dtype_info(register.dtype)
    return int(info.dl_code), info.bits, info.itemsize


class CallList:
    """The list of one function, and the frames it runs in.

    Args:
        extension: the module ``byoc_core._native``.
        program: the whole program.
        function: which function of it.
        entries: for each instruction, what it calls, ``None`` where that is nothing native.
        constants: the function's constants.
        early_results: for each result, whether its size is known before the function runs.
        fail: called with an instruction and the status that its function returned, in the thread it failed in; raises.
        num_threads: how many threads a call wants, 0 for the number of the process; ``None``: nothing uses threads.

    Attributes:
        is_whole: Python has nothing to do in a call.
    """

    def __init__(
        self,
        extension: ModuleType,
        program: Program,
        function: VMFunction,
        entries: Sequence[NativeEntry | None],
        constants: Sequence[NDArray],
        early_results: Sequence[bool],
        fail: Callable[[int, int], object],
        num_threads: int | None,
    ) -> None:
        self._native = extension
        self._function = function
        self._registers = program.registers(function)
        self._constants = tuple(constants)
        self._early_results = tuple(early_results)
        self._where = f"function `{function.name}`"
        self._owners = tuple(entry.owner for entry in entries if entry is not None)
        instructions = tuple(
            self._instruction(instruction, entry) for instruction, entry in zip(function.code, entries, strict=True)
        )
        by_kind = {kind: [register for register in self._registers if register.kind is kind] for kind in RegisterKind}
        arguments = (*by_kind[RegisterKind.PARAM], *by_kind[RegisterKind.RESULT])
        self._dtypes = tuple(to_numpy(register.dtype) for register in arguments)
        self._num_params = len(by_kind[RegisterKind.PARAM])
        self._outer: tuple[_Register, ...] = (
            *((0, *_element(register), (0,) * len(register.shape), None) for register in arguments),
            *(
                (int(array.ctypes.data), *_element(register), array.shape, None)
                for array, register in zip(self._constants, by_kind[RegisterKind.CONSTANT], strict=True)
            ),
        )
        self._elements = tuple(map(_element, by_kind[RegisterKind.TENSOR]))
        self._dynamics = (None,) * len(by_kind[RegisterKind.DYNAMIC])
        self._code: Code = extension.Code(
            instructions, len(self._registers), fail, -1 if num_threads is None else num_threads
        )
        self.is_whole = all(early_results) and all(operation != extension.PYTHON for operation, *_ in instructions)
        self._entry: Entry | None = None
        self._plan: tuple[_Shapes, Plan] | None = None
        self._spare_arenas: list[NDArray] = []
        self._first_frame: list[Frame] = []

    def prepare(self, shapes: _Shapes, layout: ArenaLayout) -> None:
        """Makes the plan of a whole function for inputs and results of these shapes, and a frame for the first call."""
        self._first_frame = [self.new_frame(layout, self._arena(layout))]
        self._make_plan(shapes, layout)

    def make_entry(self, fallback: Callable[..., Any]) -> Callable[..., Any]:
        """Gives the function as it is called by position, one native call where the arguments are like the last ones.

        Args:
            fallback: is called with any other arguments, and must in the end call :meth:`run_whole`.
        """
        assert self.is_whole
        self._entry = self._native.Entry(fallback)
        if self._plan is not None:
            self._entry.plan = self._plan[1]
        return self._entry

    def run_whole(self, inputs: Sequence[NDArray], outputs: Sequence[NDArray], layout: ArenaLayout) -> bool:
        """Runs a whole function on checked arrays.

        Returns:
            Whether it did: an output that overlaps another array, say, is left to Python.
        """
        plan = self._plan_for(inputs, outputs, layout)
        return plan.run_into(list(inputs), list(outputs)) is not None

    def run_again(self, inputs: list[Any], outputs: list[Any]) -> NDArray | tuple[NDArray, ...] | None:
        """Runs a whole function on unchecked arrays if they are like the last ones; gives ``None`` if not."""
        return None if self._plan is None else self._plan[1].run_into(inputs, outputs)

    def bind(
        self,
        inputs: Sequence[NDArray],
        outputs: Sequence[NDArray],
        layout: ArenaLayout,
        results: object,
        fallback: Callable[[], object],
    ) -> Callable[[], Any]:
        """Gives a callable that runs a whole function on these arrays each time, and gives ``results``.

        Where an instruction cannot be done it calls ``fallback``, which does the same in Python and says why not.
        """
        frame = self.new_frame(layout, new_arena(layout, self._where), (*inputs, *outputs))
        frame.point(0, [*inputs, *outputs])
        bound: Callable[[], Any] = self._native.Bound(frame, results, fallback)
        return bound

    def new_frame(self, layout: ArenaLayout, arena: NDArray, owners: Sequence[object] = ()) -> Frame:
        """Gives the memory of one call; parameters and results point nowhere yet."""
        start = int(arena.ctypes.data) + start_of(arena)
        tensors = (
            (start + offset, *element, shape, None)
            for offset, element, shape in zip(layout.offsets, self._elements, layout.shapes, strict=True)
        )
        registers: list[_Register | None] = [*self._outer, *tensors, *self._dynamics]
        followers = []
        for view in layout.views:
            base = registers[view.base]
            assert base is not None
            if not base[0]:  # what comes with a call
                followers.append((view.register, view.base, view.offset))
            strides = view.strides and tuple(stride // base[3] for stride in view.strides)
            registers.append((base[0] + view.offset, *base[1:4], view.shape, strides))
        held = (arena, self._owners, self._constants, *owners)
        frame: Frame = self._native.Frame(self._code, tuple(registers), tuple(followers), held)
        return frame

    def _plan_for(self, inputs: Sequence[NDArray], outputs: Sequence[NDArray], layout: ArenaLayout) -> Plan:
        """Gives the plan for arrays of these shapes: the last one, or a new one that takes its place."""
        shapes = tuple(array.shape for array in (*inputs, *outputs))
        last = self._plan
        if last is not None and last[0] == shapes:
            return last[1]
        if last is not None:
            self._keep_arenas(last[1])
        return self._make_plan(shapes, layout)

    def _make_plan(self, shapes: _Shapes, layout: ArenaLayout) -> Plan:
        # Not the dtypes of arrays: an equal one may have another name or metadata, and later results would too.
        specs = list(zip(self._dtypes, shapes, strict=True))
        made: Plan = self._native.Plan(
            tuple(specs[: self._num_params]), tuple(specs[self._num_params :]), lambda: self._next_frame(layout)
        )
        self._plan = shapes, made
        if self._entry is not None:
            self._entry.plan = made
        return made

    def _next_frame(self, layout: ArenaLayout) -> Frame:
        try:
            return self._first_frame.pop()
        except IndexError:
            return self.new_frame(layout, self._arena(layout))

    def _keep_arenas(self, plan: Plan) -> None:
        """Takes the memory of a plan that is given up; frames that run just now are freed behind their call."""
        self._spare_arenas.clear()
        while (frame := plan.take_frame()) is not None:
            assert isinstance(frame.owners, tuple)
            self._spare_arenas.append(frame.owners[0])

    def _arena(self, layout: ArenaLayout) -> NDArray:
        try:
            spare = self._spare_arenas.pop()
        except IndexError:
            return new_arena(layout, self._where)
        return spare if spare.nbytes >= layout.nbytes + ALIGNMENT else new_arena(layout, self._where)

    def _instruction(
        self, instruction: Instruction, entry: NativeEntry | None
    ) -> tuple[int, tuple[int, ...], int, int, int]:
        native = self._native
        match instruction:
            case Ret():
                return native.RET, (), 0, 0, 0
            case Goto(target=target):
                return native.GOTO, (), target, 0, 0
            case If(condition=condition, otherwise=target) if self._is_placed(condition):
                return native.IF, (condition,), target, 0, 0
            case Call(args=args, results=results) if all(map(self._is_placed, (*args, *results))):
                if entry is not None:
                    return native.CALL, (*args, *results), 0, entry.function, entry.context
                if instruction.kind is CallKind.BUILTIN and instruction.callee in _BUILTINS:
                    operation = getattr(native, _BUILTINS[Builtin(instruction.callee)])
                    return operation, (*args, *results), 0, 0, 0
        return native.PYTHON, (), 0, 0, 0

    def _is_placed(self, number: int) -> bool:
        """Tells whether a register has memory before the function runs."""
        register = self._registers[number]
        if register.kind is RegisterKind.VIEW:
            return self._is_placed(self._function.views[register.index].base)
        if register.kind is RegisterKind.RESULT:
            return self._early_results[register.index]
        return register.kind is not RegisterKind.DYNAMIC
