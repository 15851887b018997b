"""States during lowering: slots of the machine, and states with old values read after the new values are written."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.ir.constants import Constant
from byoc_core.ir.module import Function
from byoc_core.ir.states import states_of
from byoc_core.lower.tables import ProgramTables
from byoc_core.opset.types import TensorType
from byoc_core.vm.footprints import Footprints
from byoc_core.vm.instructions import Call
from byoc_core.vm.program import Program, StateSlot, VMFunction
from byoc_core.vm.state_laws import find_stale_reads

__all__ = ["StatePlacement", "find_slots", "stale_states"]


@dataclass(frozen=True, slots=True)
class StatePlacement:
    """The limits on the use of the buffers of states, by numbers of states.

    Attributes:
        reserved: the states with buffers for the new value alone: no intermediate lies in the buffer before.
        copied: the states with new values made elsewhere, and copied at the end.
    """

    reserved: frozenset[int] = frozenset()
    copied: frozenset[int] = frozenset()

    def refined(self, stale: frozenset[int]) -> StatePlacement:
        """Return the next limits to try for states with old values read too late."""
        return StatePlacement(self.reserved | stale, self.copied | (stale & self.reserved))


def find_slots(function: Function, tables: ProgramTables) -> tuple[StateSlot, ...]:
    """Return the states of a function in the form of the machine; initial constants become constants of the program."""
    slots = []
    for state in states_of(function):
        param = function.input_names.index(state.input)
        initial = None
        type_ = function.params[param].type
        if state.initial is not None and isinstance(type_, TensorType):
            initial = tables.constant(Constant(state.initial, type_))
        slots.append(StateSlot(param, function.output_names.index(state.output), initial, state.axis))
    return tuple(slots)


def stale_states(function: VMFunction, tables: ProgramTables) -> frozenset[int]:
    """Return the numbers of the states with old values read after, or without permission during, their destruction."""
    if not function.states:
        return frozenset()
    program = Program((), tables.externs, tables.constants)

    def permits(call: Call, position: int, number: int) -> bool:
        return (position, number) in tables.extern_traits(call.callee).in_place

    footprints = Footprints(program, function)
    return frozenset(stale.state for stale in find_stale_reads(program, function, footprints, permits))
