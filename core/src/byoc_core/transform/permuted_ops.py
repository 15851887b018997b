"""Computation of bindings on operands with axes stored in another order, and storage of constants in this order.

:class:`~byoc_core.transform.MoveTransposes` relies on both. The rules of single ops stand in ``OpDef.permute``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dtypes import is_float
from byoc_core.ir import Binding, Constant, Trait
from byoc_core.opset.permutation import Order, Permutable, inverse
from byoc_core.transform.tensors import dtype_of, rank_of

__all__ = ["as_permutable", "store"]

Array = npt.NDArray[Any]


def store(array: Array, order: Order) -> Array:
    """Return a constant stored in an order; axes of size 1 are added in front if other operands have more axes."""
    padded = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
    return np.ascontiguousarray(padded.transpose(inverse(order)))


def as_permutable(binding: Binding, *, exact: bool) -> Permutable | None:
    """Return the rule for computing an op on permuted operands; ``None`` if not possible.

    Args:
        binding: the op.
        exact: only if every bit of the result stays: not for sums and extremes of floats, whose results depend on the
            order.
    """
    if binding.op.has_trait(Trait.ELEMENTWISE):
        return _as_elementwise(binding)
    if binding.op.permute is None or not binding.operands or not rank_of(binding.operands[0]):
        return None
    found = binding.op.permute(binding.context())
    is_inexact = found is not None and found.order_matters and is_float(dtype_of(binding.operands[0]))
    return None if exact and is_inexact else found


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
