"""The copies of a function between memory domains, each with the value and the readers making the copy necessary."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.dims import Dim
from byoc_core.vm.copy_conflicts import is_crossing
from byoc_core.vm.disassemble import callee_name
from byoc_core.vm.instructions import Builtin, Call, CallKind, Instruction
from byoc_core.vm.liveness import read_registers
from byoc_core.vm.program import Program, VMFunction, nbytes_of

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

    Cost: linear in the instructions and their operands.
    """
    readers = _readers(program, function)
    names = {index: f"input `{spec.name}`" for index, spec in enumerate(function.params)}
    registers = program.registers(function)
    found = []
    for index, call in enumerate(function.code):
        if not isinstance(call, Call):
            continue
        owners = {_owner(function, number) for number in call.results}
        if call.kind is not CallKind.BUILTIN:
            names.update(dict.fromkeys(owners, f"`{callee_name(program, call)}`"))
            continue
        if not call.args:
            continue
        name = names.get(_owner(function, call.args[0]), "a value of an earlier round")
        names.update(dict.fromkeys(owners, name))
        if is_crossing(function, call):
            (source,), (target,) = call.args, call.results
            found.append(
                BorderCopy(
                    index,
                    nbytes_of(registers[target].shape, registers[target].dtype),
                    program.domain_name(function.domain_of(source)),
                    program.domain_name(function.domain_of(target)),
                    name,
                    readers[index],
                )
            )
    return tuple(found)


def _owner(function: VMFunction, register: int) -> int:
    return function.views[register - function.first_view].base if register >= function.first_view else register


def _readers(program: Program, function: VMFunction) -> dict[int, tuple[str, ...]]:
    """Return for each copy between domains the later readers of the target, until the target has another value.

    A further copy is no reader: the readers of the further copy count.
    """
    found: dict[int, tuple[str, ...]] = {}
    later: dict[int, dict[str, None]] = {}  # by owner, the first reader last
    for index, instruction in reversed(list(enumerate(function.code))):
        names = [_reader(program, function, instruction, number) for number in read_registers(instruction)]
        if isinstance(instruction, Call):
            if instruction.kind is CallKind.BUILTIN and instruction.callee == Builtin.COPY:
                names = [[*later.get(_owner(function, instruction.results[0]), {})]]
                if is_crossing(function, instruction):
                    found[index] = tuple(reversed(names[0]))
            for number in instruction.results:
                if number < function.first_view:  # a view is part of a value
                    later.pop(number, None)
        for number, added in zip(read_registers(instruction), names, strict=True):
            readers = later.setdefault(_owner(function, number), {})
            for name in added:
                readers.pop(name, None)
                readers[name] = None
    return found


def _reader(program: Program, function: VMFunction, instruction: Instruction, register: int) -> list[str]:
    if isinstance(instruction, Call):
        return [f"`{callee_name(program, instruction)}`"]
    result = _owner(function, register) - len(function.params)
    is_result = 0 <= result < len(function.results)
    return [f"result `{function.results[result].name}`" if is_result else "control flow"]
