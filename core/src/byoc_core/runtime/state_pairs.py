"""The choice of a model's states: pairs of an input and an output, or detection by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from byoc_core.errors import OptionsError

__all__ = ["DETECT", "read_state_pairs"]

DETECT = "detect"
"""The choice of all pairs named like past and present values."""


def read_state_pairs(states: object) -> str | tuple[tuple[str, str], ...]:
    """Return the choice of a caller.

    Raises:
        OptionsError: the choice is neither ``"detect"`` nor pairs of names.
    """
    if states == DETECT:
        return DETECT
    if _is_list(states):
        pairs = [pair for pair in states if _is_list(pair) and len(pair) == 2]
        if len(pairs) == len(states) and all(isinstance(name, str) for pair in pairs for name in pair):
            return tuple((source, target) for source, target in pairs)
    raise OptionsError("states", "has an unknown value", got=repr(states), expected=f"`{DETECT}`, or pairs of names")


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)
