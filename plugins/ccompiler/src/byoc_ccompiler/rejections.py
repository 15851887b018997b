"""Reasons for rejecting an op, shared by several kernel families."""

from __future__ import annotations

from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.ir import Binding, TensorType

__all__ = ["FLOATS", "operand_shape", "operand_type", "reject_non_floats", "reject_nothing", "reject_sizes"]

FLOATS = ("float32", "float64")
"""The dtypes of floating-point computation in kernels."""


def operand_type(binding: Binding, index: int) -> TensorType:
    """Return the type of an operand."""
    type_ = binding.operands[index].type
    assert isinstance(type_, TensorType)
    return type_


def operand_shape(binding: Binding, index: int) -> tuple[Dim, ...]:
    """Return the shape of an operand."""
    return operand_type(binding, index).shape or ()


def reject_sizes(binding: Binding) -> Rejection:
    """Return the reason against an op with sizes not known to agree."""
    return Rejection("dynamic-shape", f"the sizes of {binding.op.name} are not known to agree before a call")


def reject_non_floats(binding: Binding) -> Rejection | None:
    """Reject an op with a first operand outside of :data:`FLOATS`."""
    dtype = operand_type(binding, 0).dtype
    if dtype not in FLOATS:
        return Rejection("dtype", f"{binding.op.name} is compiled for {' and '.join(FLOATS)}, not for {dtype}")
    return None


def reject_nothing(binding: Binding) -> None:
    """Accept every op accepted by the type rules: unsuitable sizes are refused by a call."""
