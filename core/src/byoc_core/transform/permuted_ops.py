"""What ops become when the axes of their operands are stored in another order.

An order is a permutation of the axes: the value of the program is ``permute_dims(stored, axes=order)``. Its axis ``i``
is axis ``order[i]`` of what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dtypes import is_float
from byoc_core.ir import Binding, Constant, Trait
from byoc_core.transform.tensors import dtype_of, rank_of, shape_of

__all__ = ["Permutable", "as_permutable", "inverse", "store"]

Order = tuple[int, ...]
Array = npt.NDArray[Any]


def inverse(order: Order) -> Order:
    """Gives the permutation that undoes one."""
    return tuple(int(axis) for axis in np.argsort(order))


def store(array: Array, order: Order) -> Array:
    """Gives how a constant is stored: with axes of size 1 in front where it has fewer than others."""
    padded = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
    return np.ascontiguousarray(padded.transpose(inverse(order)))


@dataclass(frozen=True, slots=True)
class Permutable:
    """An op that may compute on operands stored in another order.

    Attributes:
        rank: the number of axes that are permuted.
        operands: the positions of the operands that are; the others stay as they are.
        attrs: gives the op's attributes for an order.
        dropped: the axes that the result lacks.
    """

    rank: int
    operands: tuple[int, ...]
    attrs: Callable[[Order], Mapping[str, Any]]
    dropped: tuple[int, ...] = ()

    def result_order(self, order: Order) -> Order:
        """Gives the order in which results are stored if operands are stored in this one."""
        kept = [order[axis] for axis in range(self.rank) if axis not in self.dropped]
        return tuple(sorted(kept).index(axis) for axis in kept)


def as_permutable(binding: Binding, *, exact: bool) -> Permutable | None:
    """Gives how an op computes on permuted operands; ``None`` where it cannot.

    Args:
        binding: the op.
        exact: only where every bit of the result stays: not for sums and extremes of floats, which depend on the order.
    """
    rank = rank_of(binding.operands[0]) if binding.operands else None
    if binding.op.has_trait(Trait.ELEMENTWISE):
        return _as_elementwise(binding)
    found = _KINDS.get(binding.op.name)
    if found is None or not rank:
        return None
    is_ordered, make = found
    if is_ordered and exact and is_float(dtype_of(binding.operands[0])):
        return None
    return make(binding, rank)


def _as_elementwise(binding: Binding) -> Permutable | None:
    rank = rank_of(binding.results[0])
    if not rank:
        return None
    positions = []
    for index, operand in enumerate(binding.operands):
        own = rank_of(operand)
        if own is None or (0 < own < rank and not isinstance(operand, Constant)):
            return None
        if own:
            positions.append(index)
    return Permutable(rank, tuple(positions), lambda _order: binding.attrs)


def _with_axis(name: str, positions: tuple[int, ...] | None = (0,)) -> Callable[[Binding, int], Permutable | None]:
    """Gives the maker for ops with one axis as an attribute, which permutes these operands (all by default)."""

    def make(binding: Binding, rank: int) -> Permutable | None:
        axis = _ints(binding.attrs[name])[0] % rank
        chosen = tuple(range(len(binding.operands))) if positions is None else positions
        if any(rank_of(binding.operands[index]) != rank for index in chosen):
            return None
        return Permutable(rank, chosen, lambda order: {**binding.attrs, name: order[axis]})

    return make


def _with_parameters(binding: Binding, rank: int) -> Permutable | None:
    # Parameters of blocks have as many axes as the tensor.
    return None if binding.attrs["block_size"] else _with_axis("axis")(binding, rank)


def _with_place(binding: Binding, rank: int) -> Permutable:
    axis = _ints(binding.attrs["axis"])[0] % rank
    dropped = () if binding.attrs["keepdims"] else (axis,)
    return Permutable(rank, (0,), lambda order: {**binding.attrs, "axis": order[axis]}, dropped)


def _with_reduction(binding: Binding, rank: int) -> Permutable:
    given = binding.attrs["axis"]
    axes = tuple(range(rank)) if given is None else tuple(axis % rank for axis in _ints(given))

    def attrs(order: Order) -> Mapping[str, Any]:
        return {**binding.attrs, "axis": None if given is None else tuple(sorted(order[axis] for axis in axes))}

    return Permutable(rank, (0,), attrs, () if binding.attrs["keepdims"] else axes)


def _with_pads(binding: Binding, rank: int) -> Permutable:
    widths = _ints(binding.attrs["pad_width"])

    def attrs(order: Order) -> Mapping[str, Any]:
        back = inverse(order)
        pairs = (widths[2 * back[axis] : 2 * back[axis] + 2] for axis in range(rank))
        return {**binding.attrs, "pad_width": tuple(width for pair in pairs for width in pair)}

    return Permutable(rank, (0,), attrs)


def _with_slices(binding: Binding, rank: int) -> Permutable:
    axes = tuple(axis % rank for axis in _ints(binding.attrs["axes"]))
    return Permutable(rank, (0,), lambda order: {**binding.attrs, "axes": tuple(order[axis] for axis in axes)})


def _with_shape(binding: Binding, rank: int) -> Permutable | None:
    target = shape_of(binding.results[0])
    if target is None or len(target) != rank:
        return None
    return Permutable(
        rank, (0,), lambda order: {**binding.attrs, "shape": tuple(target[axis] for axis in inverse(order))}
    )


def _ints(value: object) -> tuple[int, ...]:
    given = value if isinstance(value, tuple) else (value,)
    return tuple(item for item in given if isinstance(item, int))


# By op: whether results of floats depend on the order of elements, and what it becomes.
_KINDS: Mapping[str, tuple[bool, Callable[[Binding, int], Permutable | None]]] = {
    "nn.bias_add": (False, _with_axis("axis")),
    "nn.batch_norm": (False, _with_axis("axis")),
    "nn.softmax": (True, _with_axis("axis")),
    "nn.log_softmax": (True, _with_axis("axis")),
    "nn.stepwise_softmax": (True, _with_axis("axis")),
    "quantize": (False, _with_parameters),
    "dequantize": (False, _with_parameters),
    "concat": (False, _with_axis("axis", None)),
    "split": (False, _with_axis("axis")),
    "strided_slice": (False, _with_slices),
    "nn.pad": (False, _with_pads),
    "broadcast_to": (False, _with_shape),
    "argmin": (False, _with_place),
    "argmax": (False, _with_place),
    **dict.fromkeys(("sum", "mean", "max", "min", "prod", "logsumexp"), (True, _with_reduction)),
}
