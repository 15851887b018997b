"""The pending work of devices to be awaited before each instruction.

Work of a device reads and writes memory visible to the host after its instruction: copies to and from the device, and
calls on host-accessible memory. An instruction writing such memory waits for both, an instruction reading such memory
for the writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from byoc_core.vm.instructions import Builtin, Call, CallKind, Effect, Instruction, Ret
from byoc_core.vm.liveness import effect_of, read_registers
from byoc_core.vm.program import HOST, Program, RegisterKind, VMFunction, nbytes_of
from byoc_core.vm.view_laws import is_strided

__all__ = ["copy_conflicts", "is_crossing", "stream_domain"]


def is_crossing(function: VMFunction, instruction: Instruction) -> bool:
    """Return whether an instruction copies between the memory of two domains."""
    return (
        isinstance(instruction, Call)
        and (instruction.kind, instruction.callee) == (CallKind.BUILTIN, Builtin.COPY)
        and function.domain_of(instruction.args[0]) != function.domain_of(instruction.results[0])
    )


def stream_domain(program: Program, function: VMFunction, instruction: Instruction) -> int:
    """Return the domain of the device working on an instruction; the host's if the host works on the instruction.

    A copy between visible domains, or with strides in a visible domain, is work of the host; any other copy is work of
    the device out of sight: of two such devices, of the target's.
    """
    if not isinstance(instruction, Call):
        return HOST
    if instruction.kind is CallKind.EXTERN:
        return program.domain_of(instruction.callee)
    if (instruction.kind, instruction.callee) != (CallKind.BUILTIN, Builtin.COPY):
        return HOST
    source, target = function.domain_of(instruction.args[0]), function.domain_of(instruction.results[0])
    if source == target:
        has_strides = any(is_strided(function, number) for number in (*instruction.args, *instruction.results))
        return HOST if has_strides else target
    if not program.is_visible(target):
        return target
    return HOST if program.is_visible(source) else source


def copy_conflicts(program: Program, function: VMFunction) -> list[tuple[int, ...]]:
    """Return for each instruction the visible registers of pending work to be awaited before the instruction.

    Cost: registers of the instructions times registers of pending work.
    """
    ranges = _ByteRanges(program, function)
    sources: dict[int, None] = {}
    targets: dict[int, None] = {}
    for instruction in function.code:
        if isinstance(instruction, Call) and stream_domain(program, function, instruction) != HOST:
            sources |= dict.fromkeys(ranges.visible(instruction.args))
            targets |= dict.fromkeys(ranges.visible(instruction.results))
    return [ranges.conflicts(instruction, sources, targets) for instruction in function.code]


class _ByteRanges:
    """The ranges of host registers: the owner of the memory, or a byte range of a storage."""

    def __init__(self, program: Program, function: VMFunction) -> None:
        self._program = program
        self._function = function
        self._registers = program.registers(function)
        # A new value of a state is written into the memory of the old value.
        self._state_params = {len(function.params) + state.result: state.param for state in function.states}

    def conflicts(self, instruction: Instruction, sources: Iterable[int], targets: Iterable[int]) -> tuple[int, ...]:
        """Return the registers among the sources and targets of pending work in conflict with an instruction."""
        if isinstance(instruction, Ret):
            return ()  # waits for everything
        read = self.visible(read_registers(instruction))
        written = self.visible(_written(instruction))
        found = [number for number in sources if self._overlap(number, written)]
        found += [number for number in targets if self._overlap(number, (*read, *written))]
        return tuple(dict.fromkeys(found))

    def visible(self, numbers: Iterable[int]) -> list[int]:
        """Return the registers in memory visible to the host."""
        return [number for number in numbers if self._program.is_visible(self._function.domain_of(number))]

    def _overlap(self, number: int, numbers: Iterable[int]) -> bool:
        byte_range = self._byte_range(number)
        return any(_share_bytes(byte_range, self._byte_range(other)) for other in numbers)

    def _byte_range(self, number: int) -> tuple[object, float, float]:
        function = self._function
        owner = function.views[number - function.first_view].base if number >= function.first_view else number
        if self._registers[owner].kind is not RegisterKind.TENSOR:
            return ("register", self._state_params.get(owner, owner)), 0, inf
        tensor = function.tensors[owner - function.first_tensor]
        nbytes = nbytes_of(tensor.shape, tensor.dtype)
        # A symbolic size may have any value, up to the end of the storage.
        stop = tensor.offset + nbytes if isinstance(nbytes, int) else inf
        return ("storage", tensor.storage), tensor.offset, stop


def _share_bytes(left: tuple[object, float, float], right: tuple[object, float, float]) -> bool:
    return left[0] == right[0] and left[1] < right[2] and right[1] < left[2]


def _written(instruction: Instruction) -> tuple[int, ...]:
    """Return the registers whose memory is written by an instruction; a fresh buffer has no pending copy."""
    if not isinstance(instruction, Call) or effect_of(instruction) is Effect.ALLOCATES:
        return ()
    return instruction.results
