"""The attributes of an op in the types read by kernels; the type rule of the op has checked the attributes."""

from __future__ import annotations

from byoc_core.ir import Binding

__all__ = ["axes_of_attr", "axis_of", "flag_of", "float_of", "int_of", "ints_of"]


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


def ints_of(binding: Binding, name: str) -> tuple[int, ...]:
    """Return a tuple of integers, empty if the attribute is ``None``."""
    value = binding.attrs[name]
    return tuple(int(str(item)) for item in value) if isinstance(value, tuple) else ()


def axes_of_attr(binding: Binding, rank: int, name: str = "axis") -> tuple[int, ...]:
    """Return an attribute of one axis, of several axes, or of ``None`` for all axes, counted from the front."""
    value = binding.attrs[name]
    if value is None:
        return tuple(range(rank))
    return tuple(axis % rank for axis in (ints_of(binding, name) if isinstance(value, tuple) else (int(str(value)),)))
