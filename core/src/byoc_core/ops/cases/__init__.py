"""Canonical cases of the ops, as data: what they are commonly given, in the dtypes and ranks that they are met in.

They are what a backend is tried on, and small inputs that an op takes for whoever wants some. Each op that computes has
at least one; the structural ops, which hold functions or call them, have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from byoc_core.ops.cases.case import dtypes_of, function_of, infer_case, new_function
from byoc_core.opset.cases import OpCase, OperandCase, array_of

__all__ = ["OpCase", "OperandCase", "array_of", "dtypes_of", "function_of", "infer_case", "new_function", "op_cases"]


@cache
def op_cases() -> Mapping[str, tuple[OpCase, ...]]:
    """Gives the cases of each op by its name, those of an op in the order from the most common to the rarest."""
    from byoc_core.ops.cases import networks
    from byoc_core.ops.registry import default_ops

    found = {name: list(op.canonical_cases) for name, op in default_ops().items() if op.canonical_cases}
    for item in networks.CASES:
        found.setdefault(item.op, []).append(item)
    return MappingProxyType({name: tuple(cases) for name, cases in found.items()})
