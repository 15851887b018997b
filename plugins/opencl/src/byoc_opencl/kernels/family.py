"""A family of ops with kernels of one kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, is_positive
from byoc_core.ir import Binding, TensorType, Value

from byoc_opencl.kernels.step import Step, Work

__all__ = [
    "FLOATS",
    "KernelFamily",
    "dtype_of",
    "reject_empty_axis",
    "reject_nothing",
    "reject_other_than_floats",
    "reject_sizes",
    "shape_of",
]

FLOATS = ("float32", "float64")
"""The dtypes of floating-point computation in kernels."""


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """Ops written by one function.

    Attributes:
        ops: the names of the ops.
        write: returns the work of an op.
        reject: returns the reason against an op of the family, or ``None``. All tensors have a known rank and dtypes
            with a form in C other than halves.
        is_nest: whether the work is a nest with a single result.
    """

    ops: frozenset[str]
    write: Callable[[Step], Work]
    reject: Callable[[Binding], Rejection | None]
    is_nest: bool = False


def shape_of(value: Value) -> tuple[Dim, ...]:
    """Return the sizes of a tensor of known rank."""
    assert isinstance(value.type, TensorType)  # other values are rejected before
    return value.type.shape or ()


def dtype_of(value: Value) -> str:
    """Return the dtype of a tensor."""
    assert isinstance(value.type, TensorType)  # other values are rejected before
    return value.type.dtype


def reject_nothing(binding: Binding) -> None:
    """Accept every op accepted by the type rules."""


def reject_other_than_floats(binding: Binding) -> Rejection | None:
    """Reject an op with a first operand outside of :data:`FLOATS`."""
    dtype = dtype_of(binding.operands[0])
    if dtype not in FLOATS:
        return Rejection("dtype", f"{binding.op.name} has a kernel for {' and '.join(FLOATS)}, not for {dtype}")
    return None


def reject_empty_axis(binding: Binding, size: Dim) -> Rejection | None:
    """Reject an op reading an element of an axis that may be empty: the kernel would read elsewhere."""
    if is_positive(size):
        return None
    return Rejection("index", f"{binding.op.name} has a kernel for axes known to have elements, not for size {size}")


def reject_sizes(binding: Binding) -> Rejection:
    """Return the reason against an op with sizes not known to agree."""
    return Rejection("dynamic-shape", f"the sizes of {binding.op.name} are not known to agree before a call")
