"""The laws of states: a param and a result in one buffer, with the value before and the value after the call.

A write of the result destroys the old value at the written places. The verifier proves that no instruction reads the
param, or a view of the param, after such a write on any path. During the destroying call itself, only an extern may
read the param, and only if corresponding elements have the same places (linking asks for the permission of the
extern's function, as for any result in the place of an argument).

Two kinds of writes destroy nothing. A write beyond the last byte of the param touches no old value: the new rows of a
moving length. A copy from the param to the same places of the result changes no byte, and the machine makes no copy.
With other buffers for param and result, the program is a plain function from old to new values: this copy then copies.

Every result is written before ``ret`` by the laws of :mod:`byoc_core.vm.dataflow`, and so are the results of states. No
two states share memory, because each param and each result belong to one state at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from byoc_core.dims import Dim, is_nonnegative, product, shape_symbols
from byoc_core.errors import ProgramError
from byoc_core.vm.control_flow import BasicBlock, basic_blocks, reverse_postorder
from byoc_core.vm.footprints import Footprints
from byoc_core.vm.instructions import Builtin, Call, CallKind, Instruction
from byoc_core.vm.liveness import read_registers
from byoc_core.vm.program import Program, StateSlot, VMFunction, nbytes_of

__all__ = [
    "Permission",
    "StaleRead",
    "StateAliases",
    "StateCopy",
    "check_stale_reads",
    "check_state_slots",
    "find_stale_reads",
    "overwritten_states",
    "state_copies",
]

Permission = Callable[[Call, int, int], bool]
"""Returns whether an extern may write the result at a position in the place of the argument at a position."""


@dataclass(frozen=True, slots=True)
class StaleRead:
    """A read of an old value after its destruction, or during the destroying call.

    Attributes:
        state: the number of the state.
        instruction: the reading instruction.
        register: the register read.
    """

    state: int
    instruction: int
    register: int


@dataclass(frozen=True, slots=True)
class StateCopy:
    """A copy of a state's old or new value made by every call.

    Attributes:
        state: the number of the state.
        instruction: the copy.
        nbytes: the bytes copied.
    """

    state: int
    instruction: int
    nbytes: Dim


class StateAliases:
    """The memory shared by the params and results of a function's states.

    Args:
        program: the whole program.
        function: a function of the program with lawful slots.
        footprints: the memory of the function's registers.
    """

    def __init__(self, program: Program, function: VMFunction, footprints: Footprints) -> None:
        self._registers = program.registers(function)
        self._function = function
        self._footprints = footprints
        num_params = len(function.params)
        self._by_param = {state.param: number for number, state in enumerate(function.states)}
        self._by_result = {num_params + state.result: number for number, state in enumerate(function.states)}

    def state_read(self, register: int) -> int | None:
        """Return the state with an old value in a register; ``None`` for other registers."""
        return self._by_param.get(self._footprints.owners[register])

    def state_written(self, register: int) -> int | None:
        """Return the state with a new value in a register; ``None`` for other registers."""
        return self._by_result.get(self._footprints.owners[register])

    def is_unmoved(self, call: Call) -> bool:
        """Return whether a call copies places of an old value to the same places of the new value."""
        if call.kind is not CallKind.BUILTIN or call.callee != Builtin.COPY:
            return False
        (source,), (target,) = call.args, call.results
        state = self.state_read(source)
        return (
            state is not None
            and state == self.state_written(target)
            and self._footprints.have_equal_places(source, target)
        )

    def destroyed_by(self, call: Call) -> Iterator[tuple[int, int]]:
        """Yield the states with old values destroyed by a call, with the position of the destroying result."""
        if self.is_unmoved(call):
            return
        for position, register in enumerate(call.results):
            state = self.state_written(register)
            if state is not None and not self._is_beyond(register, state):
                yield state, position

    def aliased_operands(self, call: Call) -> list[tuple[int, int]]:
        """Return the positions of results and arguments of a call with shared bytes of a state."""
        return [
            (position, number)
            for state, position in self.destroyed_by(call)
            for number, arg in enumerate(call.args)
            if self.state_read(arg) == state
        ]

    def stale_reads_during(self, index: int, call: Call, permits: Permission) -> Iterator[StaleRead]:
        """Yield the reads of old values destroyed by the same call, except for elements in their own places."""
        for position, number in self.aliased_operands(call):
            result, arg = call.results[position], call.args[number]
            may_alias = call.kind is CallKind.EXTERN and self._footprints.have_equal_places(result, arg)
            if not (may_alias and permits(call, position, number)):
                state = self.state_read(arg)
                assert state is not None
                yield StaleRead(state, index, arg)

    def _is_beyond(self, register: int, state: int) -> bool:
        layout = self._footprints.layout(register)
        old = self._registers[self._function.states[state].param]
        return layout.is_empty or is_nonnegative(layout.offset - product(old.shape))


def check_state_slots(program: Program, function: VMFunction) -> None:
    """Check the declarations of a function's states; params, results and constants are valid already.

    Raises:
        ProgramError: a slot names a missing param, result, axis or constant, a param or result is in two slots, types
            do not fit, the inputs do not determine the size of the result, a moving length is the size of another
            axis of a state, or a function of the program calls a function with states.
    """
    params: set[int] = set()
    results: set[int] = set()
    lengths: dict[Dim, Dim] = {}
    for number, state in enumerate(function.states):
        where = f"function `{function.name}`, state {number}"
        for role, index, used, specs in (
            ("param", state.param, params, function.params),
            ("result", state.result, results, function.results),
        ):
            if index >= len(specs):
                raise ProgramError(where, f"names a missing {role}", got=index, expected=f"less than {len(specs)}")
            if index in used:
                raise ProgramError(where, f"names the {role} of another state", got=index)
            used.add(index)
        _check_types(program, function, state, where)
        if state.axis is not None:
            length = function.results[state.result].shape[state.axis]
            symbol = function.params[state.param].shape[state.axis]
            if lengths.setdefault(symbol, length) != length:
                raise ProgramError(where, f"grows to another length than other states of {symbol} rows", got=length)
    _check_fixed_axes(function)
    for caller in program.functions if function.states else ():
        for index, call in enumerate(caller.code):
            if not isinstance(call, Call) or call.kind is not CallKind.FUNCTION:
                continue
            if program.functions[call.callee : call.callee + 1] == (function,):
                where = f"function `{caller.name}`, instruction {index}"
                raise ProgramError(where, f"calls `{function.name}`, a function with states")


def _check_fixed_axes(function: VMFunction) -> None:
    """Check that no moving length is in the size of an axis that does not move: no value could have this size later."""
    shapes = [function.params[state.param].shape for state in function.states]
    pairs = list(zip(function.states, shapes, strict=True))
    moving = {str(shape[state.axis]) for state, shape in pairs if state.axis is not None}
    for number, (state, shape) in enumerate(pairs):
        misplaced = sorted(moving & shape_symbols(dim for axis, dim in enumerate(shape) if axis != state.axis))
        if misplaced:
            where = f"function `{function.name}`, state {number}"
            problem = f"has the moving length {', '.join(misplaced)} on an axis that does not move"
            raise ProgramError(where, problem, got=f"[{', '.join(map(str, shape))}]")


def _check_types(program: Program, function: VMFunction, state: StateSlot, where: str) -> None:
    old, new, axis = function.params[state.param], function.results[state.result], state.axis
    if not shape_symbols(new.shape) <= function.input_symbols:
        raise ProgramError(where, f"the inputs do not determine the size of result `{new.name}`", got=list(new.shape))
    fits = old.dtype == new.dtype and len(old.shape) == len(new.shape)
    if axis is None:
        fits = fits and old.shape == new.shape
    elif axis >= len(old.shape):
        raise ProgramError(where, f"has no axis {axis}", got=list(old.shape))
    else:
        fits = fits and (*old.shape[:axis], *old.shape[axis + 1 :]) == (*new.shape[:axis], *new.shape[axis + 1 :])
        if str(old.shape[axis]) not in shape_symbols(old.shape[axis : axis + 1]):
            raise ProgramError(where, "has a moving length that is no symbol", got=old.shape[axis])
        fits = fits and all(dim == 1 for dim in old.shape[:axis]) and is_nonnegative(new.shape[axis] - old.shape[axis])
    if not fits:
        raise ProgramError(
            where,
            f"result `{new.name}` does not fit parameter `{old.name}`",
            got=f"{new.dtype}[{', '.join(map(str, new.shape))}]",
            expected=f"{old.dtype}[{', '.join(map(str, old.shape))}]",
        )
    if state.initial is not None:
        if axis is not None:
            raise ProgramError(where, "has a moving length and an initial constant")
        if state.initial >= len(program.constants):
            raise ProgramError(where, "cites a missing constant", got=state.initial)
        constant = program.constants[state.initial]
        if (constant.dtype, constant.shape) != (old.dtype, old.shape):
            raise ProgramError(where, "the initial constant has another type", got=f"constant {state.initial}")


def check_stale_reads(program: Program, function: VMFunction, footprints: Footprints) -> None:
    """Check that no instruction reads an old value after its destruction; see the module.

    Raises:
        ProgramError: there is such an instruction; names the register.

    Cost: one pass over straight-line code; with loops, a few.
    """
    for stale in find_stale_reads(program, function, footprints, _permit_all):
        register = program.registers(function)[stale.register]
        where = f"function `{function.name}`, instruction {stale.instruction}"
        name = function.params[function.states[stale.state].param].name
        raise ProgramError(where, f"register {register} reads state `{name}`, overwritten by the new value")


def _permit_all(_call: Call, _position: int, _number: int) -> bool:
    return True


def find_stale_reads(
    program: Program, function: VMFunction, footprints: Footprints, permits: Permission
) -> Iterator[StaleRead]:
    """Yield the reads of old values after their destruction, or during the destroying call without permission."""
    if not function.states:
        return
    aliases = StateAliases(program, function, footprints)
    blocks = basic_blocks(function.code)
    order = reverse_postorder(blocks)
    entries: dict[int, frozenset[int]] = {0: frozenset()}
    changed = True
    while changed:
        changed = False
        for number in order:
            after = _destroyed_after(function.code, blocks[number], entries[number], aliases)
            for successor in blocks[number].successors:
                # A join only adds states, therefore the loop ends.
                merged = entries.get(successor, frozenset()) | after
                if successor not in entries or merged != entries[successor]:
                    entries[successor] = merged
                    changed = True
    for number in order:
        destroyed = set(entries[number])
        for index in range(blocks[number].start, blocks[number].stop):
            instruction = function.code[index]
            for register in read_registers(instruction):
                state = aliases.state_read(register)
                if state is not None and state in destroyed:
                    yield StaleRead(state, index, register)
            if isinstance(instruction, Call):
                yield from aliases.stale_reads_during(index, instruction, permits)
                destroyed.update(state for state, _ in aliases.destroyed_by(instruction))


def _destroyed_after(
    code: tuple[Instruction, ...], block: BasicBlock, before: frozenset[int], aliases: StateAliases
) -> frozenset[int]:
    calls = (instruction for instruction in code[block.start : block.stop] if isinstance(instruction, Call))
    return before.union(state for call in calls for state, _ in aliases.destroyed_by(call))


def state_copies(program: Program, function: VMFunction) -> tuple[StateCopy, ...]:
    """Return the copies of states made by every call: copies to or from the buffer of a state.

    A copy of new rows from elsewhere into the buffer counts too. Regions may copy inside; see the sources of regions.
    """
    if not function.states:
        return ()
    aliases = StateAliases(program, function, Footprints(program, function))
    registers = program.registers(function)
    copies = []
    for index, call in enumerate(function.code):
        if not isinstance(call, Call) or (call.kind, call.callee) != (CallKind.BUILTIN, Builtin.COPY):
            continue
        written = aliases.state_written(call.results[0])
        state = aliases.state_read(call.args[0]) if written is None else written
        if state is not None and not aliases.is_unmoved(call):
            target = registers[call.results[0]]
            copies.append(StateCopy(state, index, nbytes_of(target.shape, target.dtype)))
    return tuple(copies)


def overwritten_states(program: Program, function: VMFunction) -> frozenset[int]:
    """Return the numbers of the states with old values destroyed by a call: after a failed call, these are gone."""
    if not function.states:
        return frozenset()
    aliases = StateAliases(program, function, Footprints(program, function))
    calls = (instruction for instruction in function.code if isinstance(instruction, Call))
    return frozenset(state for call in calls for state, _ in aliases.destroyed_by(call))
