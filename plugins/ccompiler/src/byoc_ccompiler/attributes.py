"""The attributes of an op in the types that kernel families read them in; the op's rule has checked them."""

from __future__ import annotations

from byoc_core.dims import Dim, DimExpr
from byoc_core.ir import Binding

__all__ = ["axis_of", "dim_of", "dims_of", "flag_of", "float_of", "int_of", "ints_of"]


def int_of(binding: Binding, name: str) -> int:
    """Gives a whole number."""
    return int(str(binding.attrs[name]))


def float_of(binding: Binding, name: str) -> float:
    """Gives a number."""
    return float(str(binding.attrs[name]))


def flag_of(binding: Binding, name: str) -> bool:
    """Gives a truth value."""
    return binding.attrs[name] is True


def axis_of(binding: Binding, rank: int, name: str = "axis") -> int:
    """Gives an axis of a tensor of so many axes, counted from the front."""
    return int_of(binding, name) % rank


def dim_of(binding: Binding, name: str) -> Dim:
    """Gives a size."""
    value = binding.attrs[name]
    return value if isinstance(value, DimExpr) else int(str(value))


def ints_of(binding: Binding, name: str) -> tuple[int, ...]:
    """Gives whole numbers; none where the attribute is ``None``."""
    value = binding.attrs[name]
    return tuple(int(str(item)) for item in value) if isinstance(value, tuple) else ()


def dims_of(binding: Binding, name: str) -> tuple[Dim, ...]:
    """Gives sizes."""
    value = binding.attrs[name]
    assert isinstance(value, tuple)
    return tuple(item if isinstance(item, DimExpr) else int(str(item)) for item in value)
