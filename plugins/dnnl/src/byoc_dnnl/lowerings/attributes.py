"""Attributes of nodes, checked for the expected type because nodes may come from a file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

from byoc_core.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call

__all__ = [
    "axes_of_layout",
    "axis_of",
    "choice",
    "flag",
    "in_range",
    "integer",
    "integers",
    "number",
    "numbers",
]

_LARGEST_NUMBER = sys.float_info.max
_INTEGERS = range(-(2**63), 2**63)


def number(call: Call, name: str) -> float:
    """Return the value of a numeric attribute as a float."""
    value = call.attrs.get(name)
    if _is_number(value):
        return float(value)
    raise _attribute_error(call, name, "a number")


def integer(call: Call, name: str) -> int:
    """Return the value of an integer attribute."""
    value = call.attrs.get(name)
    if _is_integer(value):
        return value
    raise _attribute_error(call, name, "an integer of 64 bits")


def integers(call: Call, name: str, count: int | None = None) -> tuple[int, ...]:
    """Return the value of an attribute, a tuple of integers; with ``count``, of this length."""
    value = call.attrs.get(name)
    if isinstance(value, tuple):
        found = tuple(x for x in value if _is_integer(x))
        if len(found) == len(value) and count in (None, len(found)):
            return found
    raise _attribute_error(call, name, "integers of 64 bits" if count is None else f"{count} integers of 64 bits")


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value in _INTEGERS


def _is_number(value: object) -> TypeGuard[float]:
    is_integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_NUMBER
    return is_integer or isinstance(value, float)


def numbers(call: Call, name: str, count: int) -> tuple[float, ...]:
    """Return the value of an attribute, a tuple of ``count`` numbers, as floats."""
    value = call.attrs.get(name)
    if isinstance(value, tuple) and len(value) == count:
        found = tuple(float(x) for x in value if _is_number(x))
        if len(found) == count:
            return found
    raise _attribute_error(call, name, f"{count} numbers")


def flag(call: Call, name: str) -> bool:
    """Return the value of a boolean attribute."""
    value = call.attrs.get(name)
    if isinstance(value, bool):
        return value
    raise _attribute_error(call, name, "true or false")


def choice(call: Call, name: str, choices: Sequence[str]) -> str:
    """Return the value of an attribute, a word out of ``choices``."""
    value = call.attrs.get(name)
    if isinstance(value, str) and value in choices:
        return value
    raise _attribute_error(call, name, " or ".join(choices))


def axis_of(call: Call, name: str = "axis") -> int:
    """Return the value of an attribute, an axis of the first operand, counted from the front."""
    return in_range(call, name, integer(call, name))


def in_range(call: Call, name: str, axis: int) -> int:
    """Check an axis of the first operand against the rank, and return the axis counted from the front."""
    rank = len(call.operands[0].shape)
    if not -rank <= axis < rank:
        raise _attribute_error(call, name, f"-{rank} to {rank - 1}")
    return axis % rank


def axes_of_layout(call: Call, name: str, channels: str, rank: int) -> tuple[int, ...]:
    """Return the positions in a layout: of the axes ``channels`` (two letters), then of ``rank`` spatial axes."""
    letters = channels + "DHW"[3 - rank :]
    value = call.attrs.get(name)
    if isinstance(value, str) and sorted(value) == sorted(letters):
        return tuple(value.index(letter) for letter in letters)
    raise _attribute_error(call, name, f"the letters {letters} in any order")


def _attribute_error(call: Call, name: str, expected: str) -> ArtifactError:
    got = call.attrs.get(name, "nothing")
    return ArtifactError(f"attribute `{name}` of `{call.op}`", "has a wrong value", got=got, expected=expected)
