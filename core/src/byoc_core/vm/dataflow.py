"""Laws of programs depending on the order of execution.

Forwards: on every path, a register is written before any read, a buffer exists before any write, and the symbols of a
size are known before any use. Backwards: no two tensors with values still needed share bytes of a storage.
Writes, reads and needs refer not to registers, but to the atoms of :class:`~byoc_core.vm.footprints.Footprints`.
Therefore a tensor may be written in parts, through views, and read as a whole.

The state is changed in place along a block and copied only at block borders: long straight-line code costs no more per
instruction than short code. Only reachable blocks are examined.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf

from byoc_core.dims import shape_symbols
from byoc_core.errors import ProgramError
from byoc_core.vm.control_flow import BasicBlock, basic_blocks, reverse_postorder
from byoc_core.vm.footprints import Footprints
from byoc_core.vm.instructions import Call, Effect
from byoc_core.vm.liveness import TensorLiveness, effect_of, is_defining, read_registers
from byoc_core.vm.program import Program, RegisterKind, VMFunction, nbytes_of

__all__ = ["check_dataflow"]


def check_dataflow(program: Program, function: VMFunction, footprints: Footprints) -> None:
    """Check the order-dependent laws of a function; each instruction by itself must be well-formed already.

    Cost: one pass over straight-line code; with loops, a few. Each use of a register counts once per atom.

    Raises:
        ProgramError: a law is broken; names function, instruction and register.
    """
    _Dataflow(program, function, footprints).check()


class _NumberSet:
    """A set of numbers below a bound: lookup and change in constant time, intersection and copy as a bit string."""

    __slots__ = ("_bits",)

    def __init__(self, bound: int, members: Iterable[int] = ()) -> None:
        self._bits = bytearray(-(-bound // 8))
        for number in members:
            self.add(number)

    def __contains__(self, number: int) -> bool:
        return bool(self._bits[number >> 3] >> (number & 7) & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NumberSet) and self._bits == other._bits

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __and__(self, other: _NumberSet) -> _NumberSet:
        both = int.from_bytes(self._bits, "little") & int.from_bytes(other._bits, "little")
        return self._of(both.to_bytes(len(self._bits), "little"))

    def copy(self) -> _NumberSet:
        return self._of(self._bits)

    def add(self, number: int) -> None:
        self._bits[number >> 3] |= 1 << (number & 7)

    def discard(self, number: int) -> None:
        self._bits[number >> 3] &= ~(1 << (number & 7))

    @staticmethod
    def _of(bits: bytes | bytearray) -> _NumberSet:
        result = _NumberSet(0)
        result._bits = bytearray(bits)
        return result


@dataclass(slots=True)
class _State:
    """The facts certain at a point of the code.

    Attributes:
        written: atoms holding a value.
        buffers: registers with writable memory.
        symbols: symbols of known size.
    """

    written: _NumberSet
    buffers: _NumberSet
    symbols: set[str]

    def meet(self, other: _State) -> _State:
        return _State(self.written & other.written, self.buffers & other.buffers, self.symbols & other.symbols)

    def copy(self) -> _State:
        return _State(self.written.copy(), self.buffers.copy(), self.symbols.copy())


class _Dataflow:
    def __init__(self, program: Program, function: VMFunction, footprints: Footprints) -> None:
        self._program = program
        self._function = function
        self._footprints = footprints
        self._registers = program.registers(function)
        self._dynamics_by_symbol: dict[str, list[int]] = {}
        for number, register in enumerate(self._registers):
            if register.kind is RegisterKind.DYNAMIC:
                for name in shape_symbols(register.shape):
                    self._dynamics_by_symbol.setdefault(name, []).append(number)
        self._blocks = basic_blocks(function.code)
        self._order = reverse_postorder(self._blocks)

    def check(self) -> None:
        entries: dict[int, _State] = {0: self._entry()}
        changed = True
        while changed:
            changed = False
            for number in self._order:
                # The order visits a predecessor of every block before the block, therefore a state exists.
                state = self._run(self._blocks[number], entries[number], report=False)
                for successor in self._blocks[number].successors:
                    previous = entries.get(successor)
                    # A meet only removes facts, therefore the loop ends.
                    merged = state if previous is None else previous.meet(state)
                    if merged != previous:
                        entries[successor] = merged
                        changed = True
        # Only at the fixed point are the facts certain on every path: earlier states may contain too many.
        for number in self._order:
            self._run(self._blocks[number], entries[number], report=True)
        self._check_overlaps()

    def _entry(self) -> _State:
        function = self._function
        input_symbols = function.input_symbols
        written: list[int] = []
        buffers = []
        for number, register in enumerate(self._registers):
            match register.kind:
                case RegisterKind.PARAM | RegisterKind.CONSTANT:
                    written += self._footprints.of(number)
                case RegisterKind.TENSOR:
                    buffers.append(number)
                case RegisterKind.RESULT:
                    # Memory for a result exists at the entry only if the inputs determine the size.
                    if shape_symbols(register.shape) <= input_symbols:
                        buffers.append(number)
                case RegisterKind.VIEW:
                    buffers.append(number)  # a view of existing memory; its base decides on writes
                case RegisterKind.DYNAMIC:
                    pass
        return _State(
            _NumberSet(self._footprints.num_atoms, written),
            _NumberSet(len(self._registers), buffers),
            set(input_symbols),
        )

    def _error(self, index: int, problem: str) -> ProgramError:
        return ProgramError(f"function `{self._function.name}`, instruction {index}", problem)

    def _run(self, block: BasicBlock, before: _State, *, report: bool) -> _State:
        """Return the state after a block; with ``report``, check every instruction against the state before it."""
        state = before.copy()
        for index in range(block.start, block.stop):
            instruction = self._function.code[index]
            if report:
                for number in read_registers(instruction):
                    if not all(atom in state.written for atom in self._footprints.of(number)):
                        raise self._error(index, f"register {self._registers[number]} is read before it is written")
            if isinstance(instruction, Call):
                self._call(index, instruction, state, report=report)
        return state

    def _call(self, index: int, call: Call, state: _State, *, report: bool) -> None:
        """Update the state by a call."""
        results = sorted(set(call.results))
        if effect_of(call) is Effect.ALLOCATES:
            if report:
                self._check_symbols(index, results, state.symbols)
            for number in results:
                # The content of a fresh buffer is undefined, even if the register had a value before.
                self._undefine(number, state)
                state.buffers.add(number)
            return
        defined = self._defined(call, results)
        if report:
            for number in results:
                if number not in defined and number not in state.buffers:
                    raise self._error(index, f"register {self._registers[number]} has no buffer to write")
        for number in defined:
            for name in self._function.dynamics[self._registers[number].index].binds:
                # A new size for a symbol: values with the old size no longer match their registers' declarations.
                for stale in self._dynamics_by_symbol[name]:
                    self._undefine(stale, state)
                    state.buffers.discard(stale)
                state.symbols.add(name)
        if report:
            # Checked after the binding: a result may itself bind the symbols in its shape.
            self._check_symbols(index, defined, state.symbols)
        # After the removal of stale values: the results of this call have the new sizes.
        for number in results:
            for atom in self._footprints.defined_by(number):
                state.written.add(atom)
        for number in defined:
            state.buffers.discard(number)

    def _undefine(self, number: int, state: _State) -> None:
        for atom in self._footprints.of(number):
            state.written.discard(atom)

    def _defined(self, call: Call, results: Collection[int]) -> list[int]:
        """Return the results allocated by the callee."""
        if not is_defining(call):
            return []
        return [number for number in results if self._registers[number].kind is RegisterKind.DYNAMIC]

    def _check_symbols(self, index: int, registers: Iterable[int], known_symbols: set[str]) -> None:
        for number in registers:
            unknown = shape_symbols(self._registers[number].shape) - known_symbols
            if unknown:
                names = ", ".join(sorted(unknown))
                raise self._error(
                    index, f"the shape of register {self._registers[number]} needs {names}, not yet known"
                )

    def _check_overlaps(self) -> None:
        liveness = TensorLiveness(self._program, self._function, self._footprints)
        for number in liveness.order:
            self._check_block_overlaps(liveness, liveness.blocks[number])

    def _check_block_overlaps(self, liveness: TensorLiveness, block: BasicBlock) -> None:
        live = _LiveBytes(self._function)
        # A tensor keeps its place as long as any of its atoms is needed.
        needed = liveness.live_out(block)
        num_needed = Counter(map(liveness.tensor_of, needed))
        for tensor in sorted(num_needed):
            self._check_free(live, tensor, block.stop - 1)
            live.add(tensor)
        for index in reversed(range(block.start, block.stop)):
            reads, writes, used = liveness.uses(self._function.code[index])
            # During a call, all its operands and results are in use at once.
            for tensor in sorted(used):
                self._check_free(live, tensor, index)
                live.add(tensor)
            # Before a complete write, the old value is not needed, unless the instruction itself reads the value.
            for atom in (writes & needed) - reads:
                needed.remove(atom)
                num_needed[liveness.tensor_of(atom)] -= 1
            for atom in reads - needed:
                needed.add(atom)
                num_needed[liveness.tensor_of(atom)] += 1
            for tensor in used:
                if not num_needed[tensor]:
                    live.discard(tensor)

    def _check_free(self, live: _LiveBytes, tensor: int, index: int) -> None:
        other = live.conflict(tensor)
        if other is not None:
            raise self._error(index, f"registers t{tensor} and t{other} are both in use and share bytes")


class _LiveBytes:
    """The byte ranges of live tensors, disjoint within each storage."""

    def __init__(self, function: VMFunction) -> None:
        self._tensors = function.tensors
        self._ranges: dict[int, list[tuple[int, float, int]]] = {}

    def _range(self, tensor: int) -> tuple[int, float, int]:
        planned = self._tensors[tensor]
        nbytes = nbytes_of(planned.shape, planned.dtype)
        # A symbolic size may have any value, therefore the tensor reaches to the end of its storage.
        return planned.offset, planned.offset + nbytes if isinstance(nbytes, int) else inf, tensor

    def conflict(self, tensor: int) -> int | None:
        """Return another live tensor sharing bytes with this tensor."""
        start, stop, _ = self._range(tensor)
        if stop == start:
            return None
        ranges = self._ranges.get(self._tensors[tensor].storage, [])
        position = bisect_left(ranges, (start, 0.0, -1))
        # The ranges are disjoint: only neighbours can overlap. The range at `position` may be the tensor itself.
        for other_start, other_stop, other in ranges[max(position - 1, 0) : position + 2]:
            if other != tensor and other_start < stop and start < other_stop:
                return other
        return None

    def add(self, tensor: int) -> None:
        """Add a tensor without conflicts; do nothing if already present."""
        entry = self._range(tensor)
        ranges = self._ranges.setdefault(self._tensors[tensor].storage, [])
        position = bisect_left(ranges, entry)
        if entry[1] > entry[0] and ranges[position : position + 1] != [entry]:
            ranges.insert(position, entry)

    def discard(self, tensor: int) -> None:
        """Remove an added tensor; a tensor without bytes is in no range."""
        entry = self._range(tensor)
        ranges = self._ranges[self._tensors[tensor].storage]
        position = bisect_left(ranges, entry)
        if ranges[position : position + 1] == [entry]:
            del ranges[position]
