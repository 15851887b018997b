"""From virtual registers to the machine's: plans the storage and renumbers the code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.dims import Dim
from byoc_core.lower.liveness import live_intervals
from byoc_core.lower.plan_storage import Interval, SymbolicInterval, plan, plan_symbolic
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.instructions import Call, Goto, If, Instruction, Ret
from byoc_core.vm.program import ALIGNMENT, DynamicTensor, PlannedTensor, RegisterKind, VMFunction, nbytes_of

__all__ = ["VirtualRegister", "assign_registers"]


@dataclass(frozen=True, slots=True)
class VirtualRegister:
    """A register before it has a number in its group; see :mod:`byoc_core.vm.program` for the groups."""

    kind: RegisterKind
    dtype: str
    shape: tuple[Dim, ...]
    binds: tuple[str, ...] = ()


def assign_registers(
    name: str,
    params: tuple[TensorSpec, ...],
    results: tuple[TensorSpec, ...],
    constants: Sequence[int],
    registers: Sequence[VirtualRegister],
    code: Sequence[Instruction],
) -> VMFunction:
    """Gives the function with storage planned and registers in the machine's order.

    Args:
        name: of the function.
        params: its inputs.
        results: its outputs.
        constants: the program's number of each constant, in the order of the constant registers.
        registers: by virtual number; within a group, that order stays.
        code: instructions over virtual numbers.
    """
    order = {kind: group for group, kind in enumerate(RegisterKind)}
    ranked = sorted(range(len(registers)), key=lambda number: (order[registers[number].kind], number))
    numbers = {virtual: number for number, virtual in enumerate(ranked)}
    tensors = [number for number in ranked if registers[number].kind is RegisterKind.TENSOR]
    storages, planned = _plan_tensors(registers, tensors, code)
    return VMFunction(
        name,
        params,
        results,
        tuple(constants),
        storages,
        planned,
        tuple(
            DynamicTensor(registers[number].dtype, registers[number].shape, registers[number].binds)
            for number in ranked
            if registers[number].kind is RegisterKind.DYNAMIC
        ),
        tuple(_renumbered(instruction, numbers) for instruction in code),
    )


def _plan_tensors(
    registers: Sequence[VirtualRegister], tensors: Sequence[int], code: Sequence[Instruction]
) -> tuple[tuple[Dim, ...], tuple[PlannedTensor, ...]]:
    """Gives the storages, and the place of each tensor.

    All known sizes share storage 0; symbolic ones have storages after it.
    """
    live = live_intervals(code, tensors)
    static: dict[int, Interval] = {}
    symbolic: dict[int, SymbolicInterval] = {}
    for number in tensors:
        nbytes = nbytes_of(registers[number].shape, registers[number].dtype)
        if isinstance(nbytes, int):
            static[number] = Interval(nbytes, *live[number])
        else:
            symbolic[number] = SymbolicInterval(nbytes, *live[number])
    offsets, total = plan(tuple(static.values()), ALIGNMENT)
    chosen, sizes = plan_symbolic(tuple(symbolic.values()))
    first_symbolic = 1 if static else 0
    places = {number: (0, offset) for number, offset in zip(static, offsets, strict=True)}
    places |= {number: (first_symbolic + storage, 0) for number, storage in zip(symbolic, chosen, strict=True)}
    planned = tuple(PlannedTensor(*places[n], registers[n].dtype, registers[n].shape) for n in tensors)
    return ((total, *sizes) if static else sizes), planned


def _renumbered(instruction: Instruction, numbers: dict[int, int]) -> Instruction:
    match instruction:
        case Call(kind=kind, callee=callee, args=args, results=results):
            return Call(kind, callee, tuple(numbers[n] for n in args), tuple(numbers[n] for n in results))
        case Ret(values=values):
            return Ret(tuple(numbers[n] for n in values))
        case If(condition=condition, otherwise=target):
            return If(numbers[condition], target)
        case Goto():
            return instruction
