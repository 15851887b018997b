"""Laws of programs that depend on the order of execution.

Forwards: on every path, a register is written before it is read, a buffer exists before it is written, and the
symbols of a size are known before the size is used. Backwards: no two tensors whose values are still needed share
bytes of a storage.

Sets of registers are bit masks; only blocks that can be reached are looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from byoc_core.dims import shape_symbols
from byoc_core.errors import ProgramError
from byoc_core.vm.control_flow import BasicBlock, basic_blocks, reverse_postorder
from byoc_core.vm.instructions import BUILTINS, Builtin, Call, CallKind, Effect, If, Instruction, Ret
from byoc_core.vm.program import Program, RegisterKind, VMFunction, nbytes_of

__all__ = ["check_dataflow"]


def check_dataflow(program: Program, function: VMFunction) -> None:
    """Checks the order-dependent laws of a function whose instructions are well-formed one by one.

    Cost: one pass over straight-line code; with loops, a few.

    Raises:
        ProgramError: a law is broken; names function, instruction and register.
    """
    _Dataflow(program, function).check()


@dataclass(frozen=True, slots=True)
class _State:
    """What is certain at a point of the code.

    Attributes:
        written: registers that hold a value.
        buffers: registers that own memory that may be written.
        symbols: symbols whose sizes are known.
    """

    written: int
    buffers: int
    symbols: frozenset[str]

    def meet(self, other: _State) -> _State:
        return _State(self.written & other.written, self.buffers & other.buffers, self.symbols & other.symbols)


def _mask(registers: Iterable[int]) -> int:
    mask = 0
    for register in registers:
        mask |= 1 << register
    return mask


def _members(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _reads(instruction: Instruction) -> tuple[int, ...]:
    match instruction:
        case Call(args=args):
            return (*args, *instruction.results) if _effect(instruction) is Effect.UPDATES else args
        case Ret(values=values):
            return values
        case If(condition=condition):
            return (condition,)
        case _:
            return ()


def _effect(call: Call) -> Effect | None:
    return BUILTINS[Builtin(call.callee)].effect if call.kind is CallKind.BUILTIN else None


class _Dataflow:
    def __init__(self, program: Program, function: VMFunction) -> None:
        self._function = function
        self._registers = program.registers(function)
        self._dynamic_mask = _mask(n for n, r in enumerate(self._registers) if r.kind is RegisterKind.DYNAMIC)
        self._tensor_mask = _mask(n for n, r in enumerate(self._registers) if r.kind is RegisterKind.TENSOR)
        self._mentions: dict[str, int] = {}
        for number in _members(self._dynamic_mask):
            for name in shape_symbols(self._registers[number].shape):
                self._mentions[name] = self._mentions.get(name, 0) | 1 << number
        self._blocks = basic_blocks(function.code)
        self._order = reverse_postorder(self._blocks)

    def check(self) -> None:
        entries: dict[int, _State] = {0: self._entry()}
        changed = True
        while changed:
            changed = False
            for number in self._order:
                # The order visits a predecessor of every block before it, so a state is there.
                state = self._run(self._blocks[number], entries[number], report=False)
                for successor in self._blocks[number].successors:
                    known = entries.get(successor)
                    met = state if known is None else known.meet(state)
                    if met != known:
                        entries[successor] = met
                        changed = True
        for number in self._order:
            self._run(self._blocks[number], entries[number], report=True)
        self._check_overlaps()

    def _entry(self) -> _State:
        function = self._function
        known = function.input_symbols
        written = buffers = 0
        for number, register in enumerate(self._registers):
            match register.kind:
                case RegisterKind.PARAM | RegisterKind.CONSTANT:
                    written |= 1 << number
                case RegisterKind.TENSOR:
                    buffers |= 1 << number
                case RegisterKind.RESULT:
                    if shape_symbols(register.shape) <= known:
                        buffers |= 1 << number
                case RegisterKind.DYNAMIC:
                    pass
        return _State(written, buffers, known)

    def _error(self, index: int, problem: str) -> ProgramError:
        return ProgramError(f"function `{self._function.name}`, instruction {index}", problem)

    def _run(self, block: BasicBlock, state: _State, *, report: bool) -> _State:
        """Gives the state after a block; with ``report``, checks every instruction against the state before it."""
        for index in range(block.start, block.stop):
            instruction = self._function.code[index]
            if report:
                for number in _reads(instruction):
                    if not state.written >> number & 1:
                        raise self._error(index, f"register {self._registers[number]} is read before it is written")
            if isinstance(instruction, Call):
                state = self._call(index, instruction, state, report=report)
        return state

    def _call(self, index: int, call: Call, state: _State, *, report: bool) -> _State:
        written, buffers, symbols = state.written, state.buffers, state.symbols
        results = _mask(call.results)
        defined = results & self._dynamic_mask if call.kind in (CallKind.PACKED, CallKind.FUNCTION) else 0
        if _effect(call) is Effect.ALLOCATES:
            self._check_symbols(index, results, symbols, report=report)
            return _State(written & ~results, buffers | results, symbols)
        filled = results & ~defined
        if report and filled & ~buffers:
            first = next(_members(filled & ~buffers))
            raise self._error(index, f"register {self._registers[first]} has no buffer to write")
        bound = frozenset(
            name for number in _members(defined) for name in self._function.dynamics[self._dynamic(number)].binds
        )
        if bound:
            # A new size for a symbol: whatever has the old size is no longer what its register declares.
            stale = 0
            for name in bound:
                stale |= self._mentions[name]
            written, buffers = written & ~stale, buffers & ~stale
            symbols |= bound
        self._check_symbols(index, defined, symbols, report=report)
        return _State(written | results, buffers & ~defined, symbols)

    def _dynamic(self, number: int) -> int:
        return self._registers[number].index

    def _check_symbols(self, index: int, mask: int, known: frozenset[str], *, report: bool) -> None:
        if not report:
            return
        for number in _members(mask):
            unknown = shape_symbols(self._registers[number].shape) - known
            if unknown:
                names = ", ".join(sorted(unknown))
                raise self._error(
                    index, f"the shape of register {self._registers[number]} needs {names}, not yet known"
                )

    def _check_overlaps(self) -> None:
        code = self._function.code
        gens, kills = {}, {}
        for number in self._order:
            gen = kill = 0
            block = self._blocks[number]
            for index in reversed(range(block.start, block.stop)):
                reads, writes = self._tensor_uses(code[index])
                gen = gen & ~writes | reads
                kill |= writes
            gens[number], kills[number] = gen, kill
        live_in = dict.fromkeys(self._order, 0)
        changed = True
        while changed:
            changed = False
            for number in reversed(self._order):
                live = self._live_out(number, live_in) & ~kills[number] | gens[number]
                if live != live_in[number]:
                    live_in[number] = live
                    changed = True
        for number in self._order:
            self._check_block_overlaps(self._blocks[number], self._live_out(number, live_in))

    def _live_out(self, number: int, live_in: dict[int, int]) -> int:
        live = 0
        for successor in self._blocks[number].successors:
            live |= live_in[successor]
        return live

    def _tensor_uses(self, instruction: Instruction) -> tuple[int, int]:
        reads = _mask(_reads(instruction)) & self._tensor_mask
        writes = _mask(instruction.results) & self._tensor_mask if isinstance(instruction, Call) else 0
        return reads, writes

    def _check_block_overlaps(self, block: BasicBlock, live_out: int) -> None:
        live = _LiveBytes(self._function)
        first_tensor = next(_members(self._tensor_mask), 0)
        for number in _members(live_out):
            self._check_free(live, number - first_tensor, block.stop - 1)
            live.add(number - first_tensor)
        for index in reversed(range(block.start, block.stop)):
            reads, writes = self._tensor_uses(self._function.code[index])
            for number in _members(writes):
                live.discard(number - first_tensor)
                self._check_free(live, number - first_tensor, index)
            # While a call runs, all it reads and writes is in use at once.
            for number in _members(writes | reads):
                self._check_free(live, number - first_tensor, index)
                live.add(number - first_tensor)
            for number in _members(writes & ~reads):
                live.discard(number - first_tensor)

    def _check_free(self, live: _LiveBytes, tensor: int, index: int) -> None:
        other = live.conflict(tensor)
        if other is not None:
            raise self._error(index, f"registers t{tensor} and t{other} are in use at once and share bytes")


class _LiveBytes:
    """The byte ranges of live tensors, disjoint within each storage."""

    def __init__(self, function: VMFunction) -> None:
        self._tensors = function.tensors
        self._ranges: dict[int, list[tuple[int, float, int]]] = {}

    def _range(self, tensor: int) -> tuple[int, float, int]:
        planned = self._tensors[tensor]
        nbytes = nbytes_of(planned.shape, planned.dtype)
        # A symbolic size may be anything, so it reaches to the end of its storage.
        return planned.offset, planned.offset + nbytes if isinstance(nbytes, int) else float("inf"), tensor

    def conflict(self, tensor: int) -> int | None:
        """Gives a live tensor (another one) that shares bytes with this one."""
        start, stop, _ = self._range(tensor)
        if stop == start:
            return None
        ranges = self._ranges.get(self._tensors[tensor].storage, [])
        position = bisect_left(ranges, (start, 0.0, -1))
        for other_start, other_stop, other in ranges[max(position - 1, 0) : position + 2]:
            if other != tensor and other_start < stop and start < other_stop:
                return other
        return None

    def add(self, tensor: int) -> None:
        """Adds a tensor that has no conflict; nothing happens where it is there already."""
        entry = self._range(tensor)
        ranges = self._ranges.setdefault(self._tensors[tensor].storage, [])
        position = bisect_left(ranges, entry)
        if entry[1] > entry[0] and ranges[position : position + 1] != [entry]:
            ranges.insert(position, entry)

    def discard(self, tensor: int) -> None:
        """Takes a tensor out, if it is there."""
        entry = self._range(tensor)
        ranges = self._ranges.get(self._tensors[tensor].storage, [])
        position = bisect_left(ranges, entry)
        if ranges[position : position + 1] == [entry]:
            del ranges[position]
