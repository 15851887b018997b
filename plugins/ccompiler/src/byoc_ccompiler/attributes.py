"""The attributes of an op in the types read by kernel families; the rule of the op has checked the attributes."""

from __future__ import annotations

from byoc_core.dims import Dim, DimExpr
from byoc_core.ir import Binding

__all__ = ["axis_of", "dim_of", "dims_of", "flag_of", "float_of", "int_of", "ints_of"]


def int_of(binding: Binding, name: str) -> int:
    """Return an integer attribute."""
    return int(str(binding.attrs[name]))


def float_of(binding: Binding, name: str) -> float:
    """Return a float attribute."""
    return float(str(binding.attrs[name]))


def flag_of(binding: Binding, name: str) -> bool:
    """Return a Boolean attribute."""
    return binding.attrs[name] is True


def axis_of(binding: Binding, rank: int, name: str = "axis") -> int:
    """Return an axis of a tensor of this rank, counted from the front."""
    return int_of(binding, name) % rank


def dim_of(binding: Binding, name: str) -> Dim:
    """Return a size attribute: an integer or a symbolic expression."""
    value = binding.attrs[name]
    return value if isinstance(value, DimExpr) else int(str(value))


def ints_of(binding: Binding, name: str) -> tuple[int, ...]:
    """Return a tuple of integers, empty if the attribute is ``None``."""
    value = binding.attrs[name]
    return tuple(int(str(item)) for item in value) if isinstance(value, tuple) else ()


def dims_of(binding: Binding, name: str) -> tuple[Dim, ...]:
    """Return a tuple of sizes: integers or symbolic expressions."""
    value = binding.attrs[name]
    assert isinstance(value, tuple)
    return tuple(item if isinstance(item, DimExpr) else int(str(item)) for item in value)
