"""From virtual registers to the machine's registers: storage planning and renumbering of the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from byoc_core.dims import is_nonnegative
from byoc_core.dtypes import dtype_info
from byoc_core.lower.in_place import in_place_successors
from byoc_core.lower.liveness import live_intervals, uses
from byoc_core.lower.plan_registers import plan_registers
from byoc_core.lower.virtual_registers import VirtualRegister, VirtualRegisters
from byoc_core.runtime.memory import Pool
from byoc_core.runtime.module import CallTraits, TensorSpec
from byoc_core.runtime.plan_storage import Interval, peak_nbytes
from byoc_core.vm.instructions import Call, Goto, If, Instruction, Ret
from byoc_core.vm.program import DynamicTensor, PlannedTensor, RegisterKind, View, VMFunction, nbytes_of

__all__ = ["assign_registers"]


def assign_registers(
    name: str,
    params: tuple[TensorSpec, ...],
    results: tuple[TensorSpec, ...],
    constants: Sequence[int],
    registers: VirtualRegisters,
    code: Sequence[Instruction],
    traits: Callable[[int], CallTraits],
    alignment: Callable[[int], int],
    pools: Callable[[int], Sequence[Pool]],
    reserved: Container[int] = (),
) -> VMFunction:
    """Return the function with planned storage and with registers in the machine's order.

    Args:
        name: the function's name.
        params: the function's inputs.
        results: the function's outputs.
        constants: the program's number of each constant, in the order of the constant registers.
        registers: the registers by virtual number; the order within a group stays.
        code: instructions over virtual numbers.
        traits: returns the permissions of an extern's function, by the extern's number.
        alignment: returns the alignment of tensors in a domain.
        pools: returns the pools of a domain; none for a single memory without limit.
        reserved: results taking the place of no intermediate.

    Raises:
        MemoryLimitError: the tensors exceed the pools of a domain.
    """
    owners = [registers.owner(number) for number in range(len(registers))]
    spans = live_intervals(code, owners)
    successors = in_place_successors(registers, code, spans, traits, reserved)
    weights = _weights(registers, code, successors)
    planned = plan_registers(registers, spans, successors, alignment, pools, weights)
    if successors and not is_nonnegative(_least_arena(registers, spans) - planned.nbytes):
        separate = plan_registers(registers, spans, {}, alignment, pools, _weights(registers, code, {}))
        if not is_nonnegative(separate.nbytes - planned.nbytes):
            successors, planned = {}, separate
    locations = planned.locations
    used = {number for instruction in code for number in uses(instruction)}
    views = {number: _view_of(registers[number], successors) for number in used if registers[number].base >= 0}
    views |= {
        number: View(owner, 0, registers[number].dtype, registers[number].shape)
        for number, owner in successors.items()
        if number in used and registers[number].shape != registers[owner].shape
    }
    numbers = _numbers(registers, locations, views)
    numbers |= {number: numbers[owner] for number, owner in successors.items() if number not in views}
    return VMFunction(
        name,
        params,
        results,
        tuple(constants),
        tuple(planned.storages),
        tuple(PlannedTensor(*locations[n], registers[n].dtype, registers[n].shape) for n in sorted(locations)),
        tuple(
            DynamicTensor(register.dtype, register.shape, register.binds)
            for register in registers
            if register.kind is RegisterKind.DYNAMIC
        ),
        tuple(_renumbered(instruction, numbers) for instruction in code),
        tuple(replace(views[n], base=numbers[views[n].base]) for n in sorted(views)),
        domains=_domains(registers, numbers, views, successors),
        storage_pools=tuple(planned.pools) if any(planned.pools) else (),
    )


def _domains(
    registers: Sequence[VirtualRegister],
    numbers: Mapping[int, int],
    views: Container[int],
    successors: Container[int],
) -> tuple[int, ...]:
    """Return the domain of each register owning memory, by machine number; empty if all memory is the host's."""
    owners = {numbers[n]: registers[n].domain for n in numbers if n not in views and n not in successors}
    return tuple(owners[number] for number in sorted(owners)) if any(owners.values()) else ()


def _view_of(register: VirtualRegister, successors: Mapping[int, int]) -> View:
    """Return the view for a register; the base is still a virtual number."""
    layout = register.layout
    assert layout is not None
    offset = layout.offset * dtype_info(register.dtype).itemsize
    strides = None if layout.is_compact else layout.strides
    return View(successors.get(register.base, register.base), offset, register.dtype, register.shape, strides)


def _numbers(registers: Sequence[VirtualRegister], planned: Container[int], views: Container[int]) -> dict[int, int]:
    """Return the machine's number of every register in the machine, group by group."""
    groups: dict[RegisterKind, list[int]] = {kind: [] for kind in RegisterKind}
    for number, register in enumerate(registers):
        if number in views:
            groups[RegisterKind.VIEW].append(number)
        elif number in planned or register.kind not in (RegisterKind.TENSOR, RegisterKind.VIEW):
            groups[register.kind].append(number)
    ranked = (number for group in groups.values() for number in group)
    return {virtual: number for number, virtual in enumerate(ranked)}


def _weights(
    registers: VirtualRegisters, code: Sequence[Instruction], successors: Mapping[int, int]
) -> Mapping[int, int]:
    """Return the number of reads and writes of each register owning a place."""
    owners = (registers.owner(number) for instruction in code for number in uses(instruction))
    return Counter(successors.get(owner, owner) for owner in owners)


def _least_arena(registers: Sequence[VirtualRegister], spans: Mapping[int, tuple[int, int]]) -> int:
    """Return a lower bound of the arena of all plans without reuse in place; only known sizes count."""
    tensors = [number for number in spans if registers[number].kind is RegisterKind.TENSOR]
    sizes = {number: nbytes_of(registers[number].shape, registers[number].dtype) for number in tensors}
    return peak_nbytes(Interval(size, *spans[n]) for n, size in sizes.items() if isinstance(size, int))


def _renumbered(instruction: Instruction, numbers: Mapping[int, int]) -> Instruction:
    match instruction:
        case Call(kind=kind, callee=callee, args=args, results=results):
            return Call(kind, callee, tuple(numbers[n] for n in args), tuple(numbers[n] for n in results))
        case Ret(values=values):
            return Ret(tuple(numbers[n] for n in values))
        case If(condition=condition, otherwise=target):
            return If(numbers[condition], target)
        case Goto():
            return instruction
