"""The copies of a function between memory domains, each with the value and the readers making the copy necessary."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.dims import Dim
from byoc_core.vm.copy_conflicts import is_crossing
from byoc_core.vm.disassemble import callee_name
from byoc_core.vm.instructions import Call, CallKind
from byoc_core.vm.liveness import read_registers
from byoc_core.vm.program import Program, RegisterKind, VMFunction, nbytes_of

__all__ = ["BorderCopy", "border_copies"]


@dataclass(frozen=True, slots=True)
class BorderCopy:
    """A copy between two domains.

    Attributes:
        instruction: the number of the instruction.
        nbytes: the size of the value.
        source: the name of the domain of the value.
        target: the name of the domain with the copy.
        value: the value: an input by name, or the callee making the value.
        readers: the callees reading the copy, in order of the code, and results of the function by name.
    """

    instruction: int
    nbytes: Dim
    source: str
    target: str
    value: str
    readers: tuple[str, ...]


def border_copies(program: Program, function: VMFunction) -> tuple[BorderCopy, ...]:
    """Return the copies of a verified function between domains, in order of the code.

    Values and readers are found in the order of the text: in a loop, a value may come from the previous round.

    Cost: the copies times the instructions.
    """
    found = []
    for index, call in enumerate(function.code):
        if isinstance(call, Call) and is_crossing(function, call):
            (source,), (target,) = call.args, call.results
            register = program.registers(function)[target]
            found.append(
                BorderCopy(
                    index,
                    nbytes_of(register.shape, register.dtype),
                    program.domain_name(function.domain_of(source)),
                    program.domain_name(function.domain_of(target)),
                    _value_of(program, function, source, index),
                    _readers_of(program, function, target, index),
                )
            )
    return tuple(found)


def _owner(function: VMFunction, register: int) -> int:
    return function.views[register - function.first_view].base if register >= function.first_view else register


def _value_of(program: Program, function: VMFunction, register: int, index: int) -> str:
    owner = _owner(function, register)
    if program.registers(function)[owner].kind is RegisterKind.PARAM:
        return f"input `{function.params[owner].name}`"
    for call in reversed(function.code[:index]):
        if isinstance(call, Call) and owner in {_owner(function, number) for number in call.results}:
            if call.kind is not CallKind.BUILTIN:
                return f"`{callee_name(program, call)}`"
            if call.args:  # a copy of another value
                return _value_of(program, function, call.args[0], function.code.index(call))
    return "a value of an earlier round"


def _readers_of(program: Program, function: VMFunction, register: int, index: int) -> tuple[str, ...]:
    owner = _owner(function, register)
    readers: dict[str, None] = {}
    for instruction in function.code[index + 1 :]:
        if isinstance(instruction, Call):
            if owner in {_owner(function, number) for number in instruction.args}:
                readers[f"`{callee_name(program, instruction)}`"] = None
            if owner in {_owner(function, number) for number in instruction.results}:
                break  # another value from here on
        elif owner in {_owner(function, number) for number in read_registers(instruction)}:
            kind = program.registers(function)[owner].kind
            is_result = kind is RegisterKind.RESULT
            name = f"result `{function.results[owner - len(function.params)].name}`" if is_result else "control flow"
            readers[name] = None
    return tuple(readers)
