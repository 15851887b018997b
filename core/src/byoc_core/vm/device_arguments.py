"""Arguments of calls in the memory of a device: inputs read, and results made, in arrays of the caller without a copy.

A program copies an input from the host to a device, and a result from the device to the host. A call with arrays on the
device leaves such a copy out: the register on the device is the caller's array during the call. If the register has
other uses, for example an input overwritten in place, the device copies between the register and the array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from byoc_core.dims import product
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.devices import DeviceTensor
from byoc_core.vm.copy_conflicts import is_crossing
from byoc_core.vm.instructions import Call, Goto, If, Instruction, Ret
from byoc_core.vm.liveness import read_registers
from byoc_core.vm.program import HOST, Program, RegisterKind, VMFunction
from byoc_core.vm.views import ConcreteView

__all__ = ["ArgumentUses", "PlacedArguments", "Replacement", "find_argument_uses", "place_inputs", "place_results"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """Work in place of a copy between the host and a device.

    Attributes:
        tensor: the array of the caller, copied from or to by the device; ``None`` if the array is in its place already.
        is_additional: whether the copy itself is made too.
    """

    tensor: DeviceTensor | None
    is_additional: bool = False


@dataclass(frozen=True, slots=True)
class _InputUse:
    """The uses of an input: copies to a device, and whether there are further readers.

    Attributes:
        copies: for each copy to the device, the number of the instruction, and the target register if the target may be
            the caller's array, perhaps in another shape.
        has_other_readers: whether the input is read in the memory of the host too, or on other devices.
    """

    copies: tuple[tuple[int, int | None], ...]
    has_other_readers: bool


@dataclass(frozen=True, slots=True)
class _ResultUse:
    """The only write of a result: a copy from a device.

    Attributes:
        domain: the domain of the device.
        instruction: the number of the copy.
        source: the source register, if the source may be the caller's array, perhaps in another shape.
        has_readers: whether the result is read in the memory of the host afterwards.
    """

    domain: int
    instruction: int
    source: int | None
    has_readers: bool


@dataclass(frozen=True, slots=True)
class ArgumentUses:
    """The copies of a function that calls with arrays on devices leave out.

    Attributes:
        inputs: by index of the param and domain.
        results: by index of the result; results not made on a device are left out.
    """

    inputs: Mapping[tuple[int, int], _InputUse]
    results: Mapping[int, _ResultUse]

    def result_domain(self, index: int) -> int:
        """Return the domain of the device making a result; the host's if the host makes the result."""
        return self.results[index].domain if index in self.results else HOST


@dataclass(slots=True)
class PlacedArguments:
    """The registers replaced for a call, with their old contents.

    Attributes:
        contents: the old contents by register.
        replacements: by instruction, the work in place of a copy.
    """

    contents: dict[int, Any] = field(default_factory=dict)
    replacements: dict[int, Replacement] = field(default_factory=dict)

    def restore(self, registers: list[Any]) -> None:
        """Put the old contents back."""
        for number, content in self.contents.items():
            registers[number] = content


def find_argument_uses(program: Program, function: VMFunction) -> ArgumentUses:
    """Return the copies of inputs to devices, and of results from devices.

    Cost: linear in the instructions and their operands.
    """
    register_uses = _RegisterUses(program, function)
    num_params = len(function.params)
    inputs = {}
    for param in range(num_params):
        for domain in range(1, len(program.domains) + 1):
            if not program.is_visible(domain):
                inputs[param, domain] = register_uses.input_use(param, domain)
    states = {state.result for state in function.states}
    results = {
        index: use
        for index in range(len(function.results))
        if index not in states and (use := register_uses.result_use(num_params + index)) is not None
    }
    return ArgumentUses(inputs, results)


class _RegisterUses:
    """The reads and writes of each register owning memory, by number of the instruction."""

    def __init__(self, program: Program, function: VMFunction) -> None:
        self._program = program
        self._function = function
        self._registers = program.registers(function)
        self._reads: dict[int, list[int]] = {}
        self._writes: dict[int, list[int]] = {}
        for index, instruction in enumerate(function.code):
            for number in read_registers(instruction):
                self._reads.setdefault(self._owner(number), []).append(index)
            if isinstance(instruction, Call):
                for number in instruction.results:
                    self._writes.setdefault(self._owner(number), []).append(index)
        # Jumps backwards: instructions from the target to the jump may run again.
        self._loops = [
            (target, index)
            for index, instruction in enumerate(function.code)
            if (target := _target(instruction)) is not None and target <= index
        ]

    def _owner(self, number: int) -> int:
        function = self._function
        return function.views[number - function.first_view].base if number >= function.first_view else number

    def input_use(self, param: int, domain: int) -> _InputUse:
        copies, has_other_readers = [], False
        for index in dict.fromkeys(self._reads.get(param, ())):
            call = self._function.code[index]
            if (
                isinstance(call, Call)
                and is_crossing(self._function, call)
                and self._whole_owner(call.args[0]) == param
                and self._function.domain_of(call.results[0]) == domain
            ):
                copies.append((index, self._replaceable(call.results[0], index)))
            else:
                has_other_readers = True
        return _InputUse(tuple(copies), has_other_readers)

    def _whole_owner(self, number: int) -> int | None:
        """Return the register owning the memory if the register has all elements of the owner in row-major order."""
        owner = self._owner(number)
        if owner == number:
            return owner
        view = self._function.views[number - self._function.first_view]
        is_whole = product(view.shape) == product(self._registers[owner].shape)
        return owner if is_whole and view.is_compact and view.offset == 0 else None

    def _replaceable(self, target: int, index: int) -> int | None:
        """Return the target of a copy if no other instruction writes the memory of the target."""
        return target if self._is_planned(target) and self._writes[target] == [index] else None

    def _is_planned(self, number: int) -> bool:
        return self._registers[number].kind is RegisterKind.TENSOR

    def result_use(self, number: int) -> _ResultUse | None:
        writes = self._writes.get(number, [])
        call = self._function.code[writes[0]] if len(writes) == 1 else None
        if not isinstance(call, Call) or not is_crossing(self._function, call) or call.results != (number,):
            return None
        source, (index,) = self._whole_owner(call.args[0]), writes
        domain = self._function.domain_of(call.args[0])
        if self._program.is_visible(domain):
            return None
        is_final = (
            source is not None
            and self._is_planned(source)
            and max(self._writes[source]) < index
            and not any(start <= index <= end for start, end in self._loops)
        )
        readers = [i for i in self._reads.get(number, ()) if not isinstance(self._function.code[i], Ret)]
        return _ResultUse(domain, index, source if is_final else None, bool(readers))


def _target(instruction: Instruction) -> int | None:
    match instruction:
        case Goto(target=target):
            return target
        case If(otherwise=target):
            return target
        case _:
            return None


def place_inputs(
    uses: ArgumentUses,
    registers: list[Any],
    arrays: Mapping[int, DeviceArray],
    domains: Mapping[int, int],
    views_of: Mapping[int, Sequence[ConcreteView]],
) -> PlacedArguments:
    """Let functions of devices read the caller's arrays.

    An input with readers in the memory of the host too, or on another device, is copied to the host once.

    Args:
        uses: the copies to leave out.
        registers: the registers of the call.
        arrays: the arrays on devices, by index of the param.
        domains: the domains of these arrays, by index of the param.
        views_of: the views of a register, by register.
    """
    placed = PlacedArguments()
    for param, array in arrays.items():
        found = uses.inputs[param, domains[param]]
        registers[param] = array.numpy() if found.has_other_readers else array.tensor
        for instruction, target in found.copies:
            placed.replacements[instruction] = Replacement(None if target is not None else array.tensor)
            if target is not None:
                _replace(registers, placed, target, array.tensor, views_of)
    return placed


def place_results(
    uses: ArgumentUses,
    registers: list[Any],
    arrays: Mapping[int, DeviceArray],
    placed: PlacedArguments,
    views_of: Mapping[int, Sequence[ConcreteView]],
) -> None:
    """Let functions of devices write results into the caller's arrays, by index of the result."""
    for index, array in arrays.items():
        use = uses.results[index]
        source = use.source
        if source is None or source in placed.contents:
            placed.replacements[use.instruction] = Replacement(array.tensor, use.has_readers)
        else:
            placed.replacements[use.instruction] = Replacement(None, use.has_readers)
            _replace(registers, placed, source, array.tensor, views_of)


def _replace(
    registers: list[Any],
    placed: PlacedArguments,
    number: int,
    tensor: DeviceTensor,
    views_of: Mapping[int, Sequence[ConcreteView]],
) -> None:
    placed.contents[number] = registers[number]
    tensor = registers[number] = tensor.part(0, registers[number].shape)
    for view in views_of.get(number, ()):
        placed.contents[view.register] = registers[view.register]
        registers[view.register] = view.of(tensor)
