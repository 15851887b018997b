"""The budget of constant folding: bounds of work and memory, derived from the constants of the module.

The constants of a module are the declared data. A small model can demand far more work: a chain of ops with each tensor
ten times as large as its predecessor, a window of a billion taps, a weight changed by ten thousand ops. Therefore each
op has a cost before its computation, and the sum of costs is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from byoc_core.ir import Binding, Constant, Function, IRModule, TensorType, Type, Value
from byoc_core.ir.sizes import is_data_dependent

__all__ = ["FoldingBudget", "declared_nbytes", "distinct_nbytes", "folding_cost", "selection_nbytes"]

_BASE_COST = 1 << 29  # about a second of reference kernels
_COST_PER_BYTE = 16  # each constant may be read and written several times
_COST_PER_RETAINED_BYTE = 8
_ITERATION_COST = 1 << 12  # a round of a Python loop costs as much as some thousand elements
_POSITION_NBYTES = 8


class FoldingBudget:
    """The remaining budget of a pass for folding.

    Args:
        declared: the bytes of the distinct constants of the module before the pass.
        max_cost: bytes read and written plus FLOPs of all folded ops; by default 512 Mi plus 16 for each declared byte.
            Folded values may occupy an eighth as many bytes at once.

    Attributes:
        max_cost: the bound.
        num_refused: the number of ops not folded because of the bound.
    """

    def __init__(self, declared: int, max_cost: int | None = None) -> None:
        self.max_cost = _BASE_COST + _COST_PER_BYTE * declared if max_cost is None else max_cost
        self.num_refused = 0
        self._cost = 0
        self._nbytes = 0

    def spend(self, cost: int | None, nbytes: int = 0) -> bool:
        """Return whether work of this cost, with results of ``nbytes`` bytes, is within the bounds; spend both if so.

        A cost of ``None`` is unknown, and never permitted.
        """
        allowed = (
            cost is not None
            and self._cost + cost <= self.max_cost
            and (self._nbytes + nbytes) * _COST_PER_RETAINED_BYTE <= self.max_cost
        )
        if allowed and cost is not None:
            self._cost += cost
            self._nbytes += nbytes
        else:
            self.num_refused += 1
        return allowed

    def spend_rounds(self, count: int) -> bool:
        """Return whether ``count`` rounds of a Python loop are within the bounds; spend the rounds if so."""
        return self.spend(count * _ITERATION_COST)

    def release(self, nbytes: int) -> None:
        """Give back to the budget the bytes of a folded value without further readers."""
        self._nbytes -= nbytes


def declared_nbytes(module: IRModule) -> int:
    """Return the bytes of the distinct constants read by a module's functions. Cost: linear in ops."""
    values: list[Value] = []
    for function in module.functions.values():
        values.extend(_constants_of(function))
    return distinct_nbytes(values)


def _constants_of(function: Function) -> list[Value]:
    read = [operand for binding in function.walk() for operand in binding.operands]
    return [value for value in (*read, *function.results) if isinstance(value, Constant)]


def distinct_nbytes(values: Sequence[Value]) -> int:
    """Return the bytes of values of known size; repeated values count once."""
    distinct = {value.digest if isinstance(value, Constant) else id(value): value.type for value in values}
    sizes = (type_.nbytes for type_ in distinct.values() if isinstance(type_, TensorType))
    return sum(nbytes for nbytes in sizes if isinstance(nbytes, int))


def folding_cost(binding: Binding) -> int | None:
    """Return an upper bound of the work and the temporary memory of an op's reference kernel.

    The cost is the sum of the bytes read and written by the kernel, the FLOPs, the elements added by padding, and a
    fixed cost for each round of the Python loop. ``None`` if a size is unknown.
    """
    context = binding.context()
    parts = [binding.op.flops(context), *(_nbytes(value) for value in (*binding.operands, *binding.results))]
    known_parts = [part for part in parts if isinstance(part, int)]
    if len(known_parts) < len(parts):
        return None
    selected = sum(map(selection_nbytes, context.operands)) if is_data_dependent(binding) else 0
    return sum(known_parts) + selected + _padded_elements(binding) + _ITERATION_COST * binding.op.rounds(context)


def selection_nbytes(type_: Type) -> int:
    """Return an upper bound of the bytes selected of an operand by a data-dependent op: elements or positions."""
    elements = type_.num_elements if isinstance(type_, TensorType) else None
    rank = type_.rank if isinstance(type_, TensorType) else None
    return elements * max(rank or 0, 4) * _POSITION_NBYTES if isinstance(elements, int) else 0


def _nbytes(value: Value) -> object:
    """Return the bytes of a value; 0 if the size depends on the elements of the operands."""
    nbytes = value.type.nbytes if isinstance(value.type, TensorType) else None
    return nbytes if isinstance(nbytes, int) or isinstance(value, Constant) else 0


def _padded_elements(binding: Binding) -> int:
    """Return an upper bound of the elements read or written by a windowed op with its padding."""
    widths = _ints(binding.attrs.get("padding"))
    if not widths:
        return 0
    elements = sum(prod(_shape(value)) for value in (binding.operands[0], binding.results[0]))
    return elements * prod(1 + max(width, 0) for width in widths)


def _ints(value: object) -> tuple[int, ...]:
    return tuple(item for item in value if isinstance(item, int)) if isinstance(value, tuple) else ()


def _shape(value: Value) -> tuple[int, ...]:
    shape = (value.type.shape if isinstance(value.type, TensorType) else None) or ()
    return tuple(size for size in shape if isinstance(size, int))
