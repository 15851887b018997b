"""How much work and memory constant folding may spend: bounds that follow from the constants that a module has.

The constants of a module are its declared data. A small model can name far more work: a chain of ops of which each
makes a tensor ten times as large, a window of a billion taps, one weight that ten thousand ops change. So each op has a
cost before it is computed, and the sum of costs is bounded.
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
_ITERATION_COST = 1 << 12  # a round of a Python loop takes as long as some thousand elements
_POSITION_NBYTES = 8


class FoldingBudget:
    """What one pass may still spend on folding.

    Args:
        declared: the bytes of the distinct constants that the module has before the pass.
        max_cost: bytes read and written plus FLOPs of all ops that are folded; by default 512 Mi and 16 for each
            declared byte. Folded values may occupy an eighth as many bytes at once.

    Attributes:
        max_cost: the bound.
        num_refused: how many ops were not folded because of it.
    """

    def __init__(self, declared: int, max_cost: int | None = None) -> None:
        self.max_cost = _BASE_COST + _COST_PER_BYTE * declared if max_cost is None else max_cost
        self.num_refused = 0
        self._cost = 0
        self._nbytes = 0

    def spend(self, cost: int | None, nbytes: int = 0) -> bool:
        """Return whether work of this cost, whose results occupy so many bytes, is within the bounds; spend it if so.

        ``None`` is a cost that is not known; nothing permits it.
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
        """Return whether so many rounds of a Python loop are within the bounds; spend them if so."""
        return self.spend(count * _ITERATION_COST)

    def release(self, nbytes: int) -> None:
        """Give back the bytes of a folded value that nothing reads any more."""
        self._nbytes -= nbytes


def declared_nbytes(module: IRModule) -> int:
    """Return the bytes of the distinct constants that a module's functions read. Cost: linear in ops."""
    values: list[Value] = []
    for function in module.functions.values():
        values.extend(_constants_of(function))
    return distinct_nbytes(values)


def _constants_of(function: Function) -> list[Value]:
    read = [operand for binding in function.walk() for operand in binding.operands]
    return [value for value in (*read, *function.results) if isinstance(value, Constant)]


def distinct_nbytes(values: Sequence[Value]) -> int:
    """Return the bytes of values of known size; a value that stands there twice counts once."""
    distinct = {value.digest if isinstance(value, Constant) else id(value): value.type for value in values}
    sizes = (type_.nbytes for type_ in distinct.values() if isinstance(type_, TensorType))
    return sum(nbytes for nbytes in sizes if isinstance(nbytes, int))


def folding_cost(binding: Binding) -> int | None:
    """Return an upper bound of the work and the temporary memory of an op's reference kernel.

    The cost is the bytes that the kernel reads and writes, its FLOPs, the elements that padding adds, and what the
    rounds of its Python loops take. ``None`` where a size is not known.
    """
    context = binding.context()
    parts = [binding.op.flops(context), *(_nbytes(value) for value in (*binding.operands, *binding.results))]
    known = [part for part in parts if isinstance(part, int)]
    if len(known) < len(parts):
        return None
    selected = sum(map(selection_nbytes, context.operands)) if is_data_dependent(binding) else 0
    return sum(known) + selected + _padded_elements(binding) + _ITERATION_COST * binding.op.rounds(context)


def selection_nbytes(type_: Type) -> int:
    """Return no less than the bytes that a data-dependent op selects of an operand: its elements or their positions."""
    elements = type_.num_elements if isinstance(type_, TensorType) else None
    rank = type_.rank if isinstance(type_, TensorType) else None
    return elements * max(rank or 0, 4) * _POSITION_NBYTES if isinstance(elements, int) else 0


def _nbytes(value: Value) -> object:
    """Return the bytes of a value; 0 where the elements of the operands decide its size."""
    nbytes = value.type.nbytes if isinstance(value.type, TensorType) else None
    return nbytes if isinstance(nbytes, int) or isinstance(value, Constant) else 0


def _padded_elements(binding: Binding) -> int:
    """Return no less than the elements that a windowed op reads or writes with its padding."""
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
