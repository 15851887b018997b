"""Reasons that several kernel families have for not taking an op."""

from __future__ import annotations

from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.ir import Binding, TensorType

__all__ = ["FLOATS", "operand_shape", "operand_type", "reject_non_floats", "reject_nothing", "reject_sizes"]

FLOATS = ("float32", "float64")
"""The dtypes in which kernels compute with floating-point numbers."""


def operand_type(binding: Binding, index: int) -> TensorType:
    """Gives the type of an operand."""
    type_ = binding.operands[index].type
    assert isinstance(type_, TensorType)
    return type_


def operand_shape(binding: Binding, index: int) -> tuple[Dim, ...]:
    """Gives the shape of an operand."""
    return operand_type(binding, index).shape or ()


def reject_sizes(binding: Binding) -> Rejection:
    """Gives the reason of an op whose sizes may or may not agree."""
    return Rejection("dynamic-shape", f"whether the sizes of {binding.op.name} agree shows only when it runs")


def reject_non_floats(binding: Binding) -> Rejection | None:
    """Refuses an op whose first operand is not of :data:`FLOATS`."""
    dtype = operand_type(binding, 0).dtype
    if dtype not in FLOATS:
        return Rejection("dtype", f"{binding.op.name} is compiled for {' and '.join(FLOATS)}, not for {dtype}")
    return None


def reject_nothing(binding: Binding) -> None:
    """Takes every op that the type rules take: what does not fit is refused by a call."""
