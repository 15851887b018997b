"""Canonical cases of the ops, as data: what they are commonly given, in the dtypes and ranks that they are met in.

They are what a backend is tried on, and small inputs that an op takes for whoever wants some. Each op that computes has
at least one; the structural ops, which hold functions or call them, have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from byoc_core.ops.cases.case import (
    OpCase,
    OperandCase,
    array_of,
    case,
    function_of,
    infer_case,
    integers,
    new_function,
)

__all__ = [
    "OpCase",
    "OperandCase",
    "array_of",
    "case",
    "function_of",
    "infer_case",
    "integers",
    "new_function",
    "op_cases",
]


@cache
def op_cases() -> Mapping[str, tuple[OpCase, ...]]:
    """Gives the cases of each op by its name, those of an op in the order from the most common to the rarest."""
    from byoc_core.ops.cases import movement, networks, pointwise

    found: dict[str, list[OpCase]] = {}
    for family in (pointwise, networks, movement):
        for item in family.CASES:
            found.setdefault(item.op, []).append(item)
    return MappingProxyType({name: tuple(cases) for name, cases in found.items()})
