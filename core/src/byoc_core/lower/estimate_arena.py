"""The arena of a function before any backend is asked: an estimate from types and live ranges alone."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from byoc_core.dims import Dim, evaluate, symbols_of
from byoc_core.errors import IRTypeError
from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.opset.opdef import OpDef, Trait
from byoc_core.opset.types import TensorType
from byoc_core.runtime.plan_storage import Interval, plan

__all__ = ["ArenaEstimate", "count_nbytes", "estimate_arena"]


@dataclass(frozen=True, slots=True)
class ArenaEstimate:
    """The estimated arena of a function.

    Attributes:
        arena_nbytes: bytes of the arena, with memory reused.
        peak_nbytes: the peak of live bytes: no plan of these values is smaller.
        total_nbytes: bytes of all values: the arena without reuse.
        peak_binding: the op with the most live bytes; ``None`` for an empty arena.
        num_uncounted: values of unknown rank, counted as no bytes.
    """

    arena_nbytes: int = 0
    peak_nbytes: int = 0
    total_nbytes: int = 0
    peak_binding: Binding | None = None
    num_uncounted: int = 0


def estimate_arena(function: Function, sizes: Mapping[str, int], constants: Container[Value] = ()) -> ArenaEstimate:
    """Return the arena of a function computed op by op.

    A value lives from its op to the last reader. A result of a rearranging op is a view, except the result of a
    concatenation. The result of an elementwise op, or of an op with a kernel in place, takes the place of an operand
    of the same type, if the op is the last reader. The results of the function and the parameters are the caller's.
    An op with regions holds the arena of its largest region meanwhile. Backends need less memory by fusing ops, and
    more by scratch memory.

    Args:
        function: the function.
        sizes: the sizes of symbols; other symbols count as 1. A size below 0 counts as 0.
        constants: results of ops on constants alone, computed by the compiler; these take no place in the arena.

    Cost: ``O(n log n)`` in ops and operands, plus the cost of :func:`~byoc_core.runtime.plan_storage.plan`.
    """
    return _Estimate(function, sizes, constants).run()


def count_nbytes(types: Sequence[object], sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the bytes of tensors for sizes of symbols, and the number of types without rank, counted as no bytes."""
    found = [type_.nbytes if isinstance(type_, TensorType) else None for type_ in types]
    return sum(_count(dim, sizes) for dim in found if dim is not None), found.count(None)


def _count(dim: Dim, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    try:
        return max(evaluate(dim, {name: sizes.get(name, 1) for name in symbols_of(dim)}), 0)
    except IRTypeError:
        return 0


def _may_overwrite(op: OpDef) -> bool:
    """Return whether a result of an op may lie in the memory of an operand of the same type."""
    return op.has_trait(Trait.ELEMENTWISE) or bool(getattr(op.kernel, "overwrites_operands", False))


@dataclass(slots=True, eq=False)
class _Buffer:
    """The memory of a value and of the value's views.

    Attributes:
        type: the type of the value.
        nbytes: the bytes.
        num_uncounted: 1 for a value of unknown rank, else 0; of regions, the number of such values.
        start: the op making the value.
        end: the last reader of the value or of a view.
    """

    type: object
    nbytes: int
    num_uncounted: int
    start: int
    end: int


class _Estimate:
    def __init__(self, function: Function, sizes: Mapping[str, int], constants: Container[Value]) -> None:
        self._function = function
        self._sizes = sizes
        self._constants = constants
        self._buffers: list[_Buffer] = []
        self._buffer_of: dict[Var, _Buffer] = {}

    def run(self) -> ArenaEstimate:
        bindings = self._function.bindings
        last_readers = self._find_last_readers()
        for index, binding in enumerate(bindings):
            if binding.results[0] in self._constants:
                continue
            self._add_region(binding, index)
            base = self._find_base(binding)
            is_view = binding.op.view is not None and not binding.op.view.joins
            for result in binding.results:
                end = last_readers.get(result, index)
                if is_view:
                    buffer = base
                else:
                    buffer = self._find_overwritten(binding, result, index) or self._new_buffer(result, index)
                if buffer is not None:
                    buffer.end = max(buffer.end, end)
                    self._buffer_of[result] = buffer
        returned = {id(self._buffer_of.get(value)) for value in self._function.results if isinstance(value, Var)}
        return self._plan([buffer for buffer in self._buffers if id(buffer) not in returned])

    def _find_last_readers(self) -> dict[Value, int]:
        found: dict[Value, int] = {}
        for index, binding in enumerate(self._function.bindings):
            found.update(dict.fromkeys(binding.operands, index))
        found.update(dict.fromkeys(self._function.results, len(self._function.bindings)))
        return found

    def _find_base(self, binding: Binding) -> _Buffer | None:
        first = binding.operands[0] if binding.operands else None
        return self._buffer_of.get(first) if isinstance(first, Var) else None

    def _find_overwritten(self, binding: Binding, result: Var, index: int) -> _Buffer | None:
        """Return the buffer of an operand to be overwritten by the only result of an op, if any."""
        if len(binding.results) > 1 or not _may_overwrite(binding.op):
            return None
        for operand in binding.operands:
            buffer = self._buffer_of.get(operand) if isinstance(operand, Var) else None
            if buffer is not None and buffer.end == index and buffer.type == result.type:
                return buffer
        return None

    def _new_buffer(self, result: Var, index: int) -> _Buffer:
        nbytes, num_uncounted = count_nbytes([result.type], self._sizes)
        self._buffers.append(_Buffer(result.type, nbytes, num_uncounted, index, index))
        return self._buffers[-1]

    def _add_region(self, binding: Binding, index: int) -> None:
        """Add the arena of the largest region of an op as a buffer of this op."""
        estimates = [_Estimate(region, self._sizes, self._constants).run() for region in binding.regions]
        if estimates:
            nbytes = max(estimate.arena_nbytes for estimate in estimates)
            num_uncounted = sum(estimate.num_uncounted for estimate in estimates)
            self._buffers.append(_Buffer(None, nbytes, num_uncounted, index, index))

    def _plan(self, buffers: Sequence[_Buffer]) -> ArenaEstimate:
        intervals = [Interval(buffer.nbytes, buffer.start, buffer.end) for buffer in buffers if buffer.nbytes]
        changes = [0] * (len(self._function.bindings) + 2)
        for interval in intervals:
            changes[interval.start] += interval.nbytes
            changes[interval.end + 1] -= interval.nbytes
        live = list(accumulate(changes))
        peak = max(live)
        return ArenaEstimate(
            plan(intervals).total,
            peak,
            sum(interval.nbytes for interval in intervals),
            self._function.bindings[live.index(peak)] if peak else None,
            sum(buffer.num_uncounted for buffer in buffers),
        )
