"""The choice of intermediates to be overwritten in place by a result of the last call reading them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from byoc_core.dims import product
from byoc_core.lower.virtual_registers import VirtualRegisters
from byoc_core.runtime.module import CallTraits
from byoc_core.vm.instructions import Call, CallKind, Instruction
from byoc_core.vm.program import RegisterKind

__all__ = ["in_place_successors"]


def in_place_successors(
    registers: VirtualRegisters,
    code: Sequence[Instruction],
    spans: Mapping[int, tuple[int, int]],
    traits: Callable[[int], CallTraits],
    reserved: Container[int] = (),
) -> dict[int, int]:
    """Return, for each planned tensor to be overwritten in place, the last tensor or result in the same place.

    The extern with the last read of the earlier tensor is the first to write the later tensor, and permits the result
    in the operand's place.

    Args:
        registers: the registers by virtual number.
        code: instructions over virtual numbers.
        spans: the live range of each register with memory of its own.
        traits: returns the permissions of an extern's function, by the extern's number.
        reserved: results taking the place of no earlier tensor.

    Cost: linear in the code.
    """
    return _InPlaceSearch(registers, spans, traits, reserved).find(code)


class _InPlaceSearch:
    def __init__(
        self,
        registers: VirtualRegisters,
        spans: Mapping[int, tuple[int, int]],
        traits: Callable[[int], CallTraits],
        reserved: Container[int],
    ) -> None:
        self._registers = registers
        self._reserved = reserved
        self._spans = spans
        self._traits = traits
        self._successors: dict[int, int] = {}

    def find(self, code: Sequence[Instruction]) -> dict[int, int]:
        """Return the last register in each place, for each earlier register in the place."""
        for position, call in enumerate(code):
            if isinstance(call, Call) and call.kind is CallKind.EXTERN:
                for output in range(len(call.results)):
                    self._join(position, call, output)
        last: dict[int, int] = {}
        for number in reversed(self._successors):
            successor = self._successors[number]
            last[number] = last.get(successor, successor)
        return last

    def _join(self, position: int, call: Call, output: int) -> None:
        permitted = {arg for result, arg in self._traits(call.callee).in_place if result == output}
        for number in sorted(permitted):
            if number < len(call.args) and self._may_overwrite(position, call, output, call.args[number], permitted):
                self._successors[self._registers.owner(call.args[number])] = call.results[output]
                return

    def _may_overwrite(self, position: int, call: Call, output: int, arg: int, permitted: set[int]) -> bool:
        result, owner = call.results[output], self._registers.owner(arg)
        if owner in self._successors or self._registers.owner(result) != result or self._spans[result][0] != position:
            return False
        if self._registers[result].kind not in (RegisterKind.TENSOR, RegisterKind.RESULT) or result in self._reserved:
            return False
        if self._registers[owner].kind is not RegisterKind.TENSOR or self._spans[owner][1] != position:
            return False
        if self._registers[owner].dtype != self._registers[result].dtype:
            return False
        if self._registers[owner].domain != self._registers[result].domain:
            return False
        if product(self._registers[owner].shape) != product(self._registers[result].shape):
            return False
        if any(self._registers.owner(other) == owner for other in call.results):
            return False
        reads = [k for k, other in enumerate(call.args) if self._registers.owner(other) == owner]
        return all(k in permitted and self._covers_owner(call.args[k]) for k in reads)

    def _covers_owner(self, register: int) -> bool:
        layout = self._registers.layout(register)
        owner = self._registers[self._registers.owner(register)]
        return layout.is_compact and product(layout.shape) == product(owner.shape)
