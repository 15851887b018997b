"""The laws of lowered functions, checked for all sizes of the symbols.

- Every part lies inside its buffer, in each round of the surrounding loops; the buffer belongs to the function.
- Inputs and constants are never changed.
- A part is read only behind statements writing every element of the part; outputs are written completely.
- A changed part shares no element with another argument of the same call.
- Every statement writes a buffer.
- Every symbol is a size of the parameters or the index of a surrounding loop.

Written elements are tracked as intervals of offsets. A loop writing adjacent or overlapping intervals writes their
union; an interval with gaps counts as unwritten. Proofs may be missed: such a function is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from byoc_core.backend.lowered_buffers import Access, Buffer, BufferPart, BufferRole
from byoc_core.backend.lowered_function import (
    Copy,
    CValue,
    ExternCall,
    Loop,
    LoweredFunction,
    Statement,
    parts_of,
)
from byoc_core.dims import Dim, is_nonnegative, shape_symbols, substitute, symbol
from byoc_core.errors import CodegenError

__all__ = ["check_lowered"]

_Span = tuple[Dim, Dim]
"""The first offset of an interval, and the offset behind its last element."""


def check_lowered(lowered: LoweredFunction) -> None:
    """Check a lowered function.

    Raises:
        CodegenError: a law is broken, or cannot be proved; names function, statement, buffer and elements.

    Cost: linear in the statements; for each statement, the separate intervals written so far of the buffers.
    """
    _Checker(lowered).run()


class _Checker:
    def __init__(self, lowered: LoweredFunction) -> None:
        self._lowered = lowered
        self._where = f"function `{lowered.function.name}`"
        self._symbols = shape_symbols(dim for buffer in lowered.inputs for dim in buffer.shape)
        self._own = {*lowered.inputs, *lowered.outputs, *lowered.intermediates}
        self._written: dict[Buffer, list[_Span]] = {}
        self._loops: list[Loop] = []
        self._statement = ""

    def run(self) -> None:
        for buffer in (*self._lowered.outputs, *self._lowered.intermediates):
            self._check_symbols(buffer.shape, f"the size of buffer `{buffer.name}`")
        for number, statement in enumerate(self._lowered.statements):
            self._run([statement])
            if all(part.access is Access.READ for part in parts_of(statement)):
                self._statement = f", statement {number}" + (
                    self._statement if isinstance(statement, ExternCall) else ""
                )
                raise self._error("writes no buffer")
        self._statement = ""
        for output in self._lowered.outputs:
            if not self._covers(output, (0, output.size)):
                raise self._error(f"output `{output.name}` is not written completely", self._written_text(output))

    def _run(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            match statement:
                case ExternCall(symbol=symbol, arguments=arguments):
                    self._statement = f", call of `{symbol}`"
                    self._check_symbols(
                        [item for item in arguments if not isinstance(item, BufferPart | CValue)], "an argument"
                    )
                    self._access([item for item in arguments if isinstance(item, BufferPart)])
                case Copy(source=source, target=target):
                    self._statement = f", copy to `{target.buffer.name}`"
                    self._check_copy(source, target)
                    self._access([source, target])
                case Loop():
                    self._run_loop(statement)

    def _run_loop(self, loop: Loop) -> None:
        self._statement = f", loop over `{loop.index}`"
        self._check_symbols([loop.extent], "the number of rounds")
        before = {buffer: list(spans) for buffer, spans in self._written.items()}
        self._loops.append(loop)
        self._run(loop.body)
        self._loops.pop()
        after, self._written = self._written, before
        for buffer, spans in after.items():
            for span in spans:
                union = self._over_rounds(span, loop)
                if union is not None:
                    self._add(buffer, union)

    def _access(self, parts: Sequence[BufferPart]) -> None:
        for part in parts:
            if part.buffer.constant is None and part.buffer not in self._own:
                raise self._error(f"{part.access.value} `{part.buffer.name}`, a buffer of another function")
            self._check_bounds(part)
            if part.access is not Access.READ and part.buffer.role in (BufferRole.INPUT, BufferRole.CONSTANT):
                raise self._error(f"{part.access.value} `{part.buffer.name}`, never changed", part.buffer.role.value)
            if part.access is not Access.WRITE and not self._is_defined(part):
                raise self._error(f"reads {_text(part)} before the first write", self._written_text(part.buffer))
        for left, right in combinations(parts, 2):
            both_read = left.access is right.access is Access.READ
            if left.buffer is right.buffer and not both_read and not self._are_disjoint(left, right):
                raise self._error(f"accesses {_text(left)} and {_text(right)}, not provably disjoint, and changes them")
        for part in parts:
            if part.access is not Access.READ:
                self._add(part.buffer, (part.offset, part.offset + part.size))

    def _check_copy(self, source: BufferPart, target: BufferPart) -> None:
        if source.buffer.dtype != target.buffer.dtype:
            raise self._error("copies between different dtypes", f"{source.buffer.dtype} and {target.buffer.dtype}")
        if source.size != target.size:
            raise self._error("copies between different sizes", f"{source.size} and {target.size} elements")

    def _check_bounds(self, part: BufferPart) -> None:
        self._check_symbols((part.offset, part.size), f"a part of `{part.buffer.name}`")
        if (part.offset, part.size) == (0, part.buffer.size):  # a size such as `n-2` is checked in each call
            return
        bounds = (part.offset, part.size, part.buffer.size - part.offset - part.size)
        if not all(map(self._is_nonnegative, bounds)):
            raise self._error(
                f"{part.access.value} {_text(part)}, not provably inside the buffer", f"{part.buffer.size} elements"
            )

    def _check_symbols(self, dims: Iterable[Dim], subject: str) -> None:
        indexes = {loop.index for loop in self._loops}
        unknown = shape_symbols(dims) - self._symbols - indexes
        if unknown:
            raise self._error(
                f"{subject} has an unknown symbol",
                ", ".join(sorted(unknown)),
                ", ".join(sorted(self._symbols | indexes)) or "no symbol",
            )

    def _is_defined(self, part: BufferPart) -> bool:
        if part.buffer.role in (BufferRole.INPUT, BufferRole.CONSTANT):
            return True
        return self._covers(part.buffer, (part.offset, part.offset + part.size))

    def _covers(self, buffer: Buffer, span: _Span) -> bool:
        start, end = span
        if self._is_nonnegative(start - end):
            return True
        return any(
            self._is_nonnegative(start - first) and self._is_nonnegative(last - end)
            for first, last in self._written.get(buffer, ())
        )

    def _are_disjoint(self, left: BufferPart, right: BufferPart) -> bool:
        gaps = (right.offset - left.offset - left.size, left.offset - right.offset - right.size)
        return any(map(self._is_nonnegative, (*gaps, -left.size, -right.size)))

    def _add(self, buffer: Buffer, span: _Span) -> None:
        """Add a written interval, merged with all intervals known to touch or to overlap."""
        start, end = span
        spans = self._written.setdefault(buffer, [])
        merged = True
        while merged:
            merged = False
            for other in spans:
                first, last = other
                if self._is_nonnegative(last - start) and self._is_nonnegative(end - first):
                    new_start = self._extreme(start, first, smaller=True)
                    new_end = self._extreme(end, last, smaller=False)
                    if new_start is not None and new_end is not None:
                        spans.remove(other)
                        start, end, merged = new_start, new_end, True
                        break
        spans.append((start, end))

    def _extreme(self, left: Dim, right: Dim, *, smaller: bool) -> Dim | None:
        """Return the smaller or the larger of two offsets; ``None`` if not provable."""
        if self._is_nonnegative(right - left):
            return left if smaller else right
        if self._is_nonnegative(left - right):
            return right if smaller else left
        return None

    def _is_nonnegative(self, dim: Dim) -> bool:
        """Return whether an expression is provably zero or more in all rounds of the surrounding loops."""
        return _is_nonnegative_in_rounds(dim, self._loops)

    def _over_rounds(self, span: _Span, loop: Loop) -> _Span | None:
        """Return the elements written by all rounds of a loop as an interval; ``None`` if there may be gaps."""
        start, end = span
        first, step = _linear(start, loop.index)
        last, end_step = _linear(end, loop.index)
        if first is None or step is None or last is None or end_step != step:
            return None
        size = last - first
        if step == size:  # adjacent, and nothing without a round
            return first, first + step * loop.extent
        if not all(map(self._is_nonnegative, (loop.extent - 1, size - step, step))):
            return None
        return first, first + step * (loop.extent - 1) + size

    def _written_text(self, buffer: Buffer) -> str:
        spans = ", ".join(f"{start} to {end}" for start, end in self._written.get(buffer, ()))
        return f"elements written so far: {spans or 'none'}"

    def _error(self, problem: str, got: str | None = None, expected: str | None = None) -> CodegenError:
        return CodegenError(f"{self._where}{self._statement}", problem, got=got, expected=expected)


def _text(part: BufferPart) -> str:
    return f"elements {part.offset} to {part.offset + part.size} of `{part.buffer.name}`"


def _is_nonnegative_in_rounds(dim: Dim, loops: Sequence[Loop]) -> bool:
    """Return whether an expression is provably zero or more in all rounds of nested loops.

    An expression linear in an index is smallest in the first or last round. A round exists, so the extent is at least
    1: the expression may be reduced by a multiple of the extent less 1. For another expression, the indexes count as
    sizes of zero or more.

    Cost: up to four proofs for each loop, multiplied over the loops.
    """
    if not loops:
        return is_nonnegative(dim)
    *outer, loop = loops
    start, slope = _linear(dim, loop.index)
    if start is None or slope is None:
        return is_nonnegative(dim)
    last = loop.extent - 1
    scale = next((scale for scale in (slope, -slope) if scale != 0 and is_nonnegative(scale)), 1)
    return all(
        _is_nonnegative_in_rounds(value, outer)
        or (not isinstance(last, int) and _is_nonnegative_in_rounds(value - scale * last, outer))
        for value in dict.fromkeys((start, start + slope * last))
    )


def _linear(dim: Dim, name: str) -> tuple[Dim | None, Dim | None]:
    """Return start and slope of an expression linear in a symbol; ``None`` twice for another expression."""
    start = substitute(dim, {name: 0})
    slope = substitute(dim, {name: 1}) - start
    return (start, slope) if dim == start + slope * symbol(name) else (None, None)
