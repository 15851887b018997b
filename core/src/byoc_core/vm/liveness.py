"""Backward liveness of planned tensors, by the atoms of :class:`~byoc_core.vm.footprints.Footprints`.

A write through a view defines a part of a tensor only. Therefore tensors are examined atom by atom, and a tensor is
live as long as any of its atoms is live. Only reachable blocks are examined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from byoc_core.vm.control_flow import BasicBlock, basic_blocks, reverse_postorder
from byoc_core.vm.footprints import Footprints
from byoc_core.vm.instructions import BUILTINS, Builtin, Call, CallKind, Effect, If, Instruction, Ret
from byoc_core.vm.program import Program, RegisterKind, VMFunction

__all__ = ["TensorLiveness", "effect_of", "is_defining", "read_registers"]


def read_registers(instruction: Instruction) -> tuple[int, ...]:
    """Return the registers read by an instruction."""
    match instruction:
        case Call(args=args):
            return (*args, *instruction.results) if effect_of(instruction) is Effect.UPDATES else args
        case Ret(values=values):
            return values
        case If(condition=condition):
            return (condition,)
        case _:
            return ()


def effect_of(call: Call) -> Effect | None:
    """Return the effect of a builtin; ``None`` for other calls."""
    return BUILTINS[Builtin(call.callee)].effect if call.kind is CallKind.BUILTIN else None


def is_defining(call: Call) -> bool:
    """Return whether a call defines its dynamic results, instead of writing existing buffers."""
    return call.kind in (CallKind.PACKED, CallKind.FUNCTION) or effect_of(call) is Effect.DEFINES


class TensorLiveness:
    """The live atoms of planned tensors at the end of each block.

    Attributes:
        blocks: the basic blocks of the function.
        order: the reachable blocks, each before its successors as far as loops permit.

    Cost: one pass over straight-line code; with loops, a few. Each use of a register counts once per atom.
    """

    def __init__(self, program: Program, function: VMFunction, footprints: Footprints) -> None:
        self._function = function
        self._footprints = footprints
        self._registers = program.registers(function)
        self.blocks = basic_blocks(function.code)
        self.order = reverse_postorder(self.blocks)
        self._live_in: dict[int, set[int]] = {number: set() for number in self.order}
        self._find_live_in()

    def _find_live_in(self) -> None:
        gens: dict[int, set[int]] = {}
        kills: dict[int, set[int]] = {}
        for number in self.order:
            gen, kill = gens.setdefault(number, set()), kills.setdefault(number, set())
            block = self.blocks[number]
            for index in reversed(range(block.start, block.stop)):
                reads, writes, _ = self.uses(self._function.code[index])
                # Backwards, a write hides the later reads; the reads of the same instruction come before its write.
                gen -= writes
                gen |= reads
                kill |= writes
        changed = True
        while changed:
            changed = False
            # Successors come first, as far as loops permit: few rounds suffice.
            for number in reversed(self.order):
                live = self.live_out(self.blocks[number]) - kills[number] | gens[number]
                if live != self._live_in[number]:
                    self._live_in[number] = live
                    changed = True

    def live_out(self, block: BasicBlock) -> set[int]:
        """Return the atoms live at the end of a block."""
        return set[int]().union(*(self._live_in[successor] for successor in block.successors))

    def uses(self, instruction: Instruction) -> tuple[set[int], set[int], set[int]]:
        """Return the tensor atoms read by an instruction, the atoms written wholly, and the tensors used."""
        reads = self._in_arena(read_registers(instruction))
        writes = self._in_arena(instruction.results if isinstance(instruction, Call) else ())
        defined = {atom for number in writes for atom in self._footprints.defined_by(number)}
        used = {self._registers[self._footprints.owners[number]].index for number in (*reads, *writes)}
        return self._footprints.of_all(reads), defined, used

    def tensor_of(self, atom: int) -> int:
        """Return the index of the planned tensor owning an atom."""
        return self._registers[self._footprints.owner_of[atom]].index

    def live_ranges(self) -> dict[int, tuple[int, int]]:
        """Return the first and the last instruction with each planned tensor live or in use, by index of the tensor.

        A tensor live around the back edge of a loop is live in the whole loop. Tensors without a use in reachable code
        are left out.
        """
        ranges: dict[int, tuple[int, int]] = {}

        def extend(tensor: int, first: int, last: int) -> None:
            known_first, known_last = ranges.get(tensor, (first, last))
            ranges[tensor] = min(first, known_first), max(last, known_last)

        for number in self.order:
            block = self.blocks[number]
            needed = self.live_out(block)
            num_needed = Counter(map(self.tensor_of, needed))
            # The last instruction of each range still open, going backwards.
            last = dict.fromkeys(num_needed, block.stop - 1)
            for index in reversed(range(block.start, block.stop)):
                reads, writes, used = self.uses(self._function.code[index])
                for tensor in used:
                    last.setdefault(tensor, index)
                for atom in (writes & needed) - reads:
                    needed.remove(atom)
                    num_needed[self.tensor_of(atom)] -= 1
                for atom in reads - needed:
                    needed.add(atom)
                    num_needed[self.tensor_of(atom)] += 1
                for tensor in used:
                    if not num_needed[tensor]:
                        extend(tensor, index, last.pop(tensor))
            for tensor, end in last.items():
                extend(tensor, block.start, end)
        return dict(sorted(ranges.items()))

    def _in_arena(self, registers: Iterable[int]) -> list[int]:
        owners = self._footprints.owners
        return [number for number in registers if self._registers[owners[number]].kind is RegisterKind.TENSOR]
