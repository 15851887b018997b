"""The space of an op without a specific space: canonical cases, in other sizes and with other attributes."""

from __future__ import annotations

import math
from dataclasses import replace

from byoc_core.ir import AttrKind, OpDef
from byoc_core.ops.cases import OpCase

from byoc_conformance.drawing.pairwise import Levels
from byoc_conformance.drawing.spaces.space import Space, has_indices, has_sizes_among_elements, schema_levels

__all__ = ["canonical"]

_SIZES: tuple[dict[int, int], ...] = (
    {},
    {2: 7, 3: 17, 4: 9, 16: 33, 32: 5},
    {2: 70, 3: 130, 16: 131, 32: 67},
    {2: 1, 3: 8, 5: 6, 16: 3},
)
"""Replacements of sizes; equal sizes change alike. Some sizes exceed a tile of a product."""
_FEW_CASES = 4
_OWN = "as it is"
_INTEGERS = (0, 1, 2, -1)
_CASE, _SIZE = "canonical case", "canonical sizes"
"""The factors beside the attributes: no attribute has a space in its name."""


def canonical(op: OpDef) -> Space:
    """Return the space of the canonical cases of an op, without empty cases."""
    cases = [case for case in op.canonical_cases if all(math.prod(operand.shape) for operand in case.operands)]
    levels = {name: (_OWN, *found) for name, found in schema_levels(op).items()}
    integer_levels = {spec.name: (_OWN, *_INTEGERS) for spec in op.attrs if spec.kind in {AttrKind.INT, AttrKind.DIM}}

    def build(row: Levels) -> OpCase:
        attrs = {name: row[name] for name in (*levels, *integer_levels) if row[name] != _OWN}
        case = cases[row[_CASE]]
        return _resized(replace(case, attrs={**case.attrs, **attrs}), row[_SIZE])

    # Many canonical cases already differ in size.
    sizes = _SIZES if len(cases) <= _FEW_CASES else _SIZES[:-1]
    sizes = sizes[:1] if has_sizes_among_elements(op) else sizes
    return Space({_CASE: tuple(range(len(cases))), _SIZE: sizes, **levels, **integer_levels}, build)


def _resized(case: OpCase, changes: dict[int, int]) -> OpCase:
    """Return the case with other sizes; with index operands, no size shrinks, so indices stay in range."""
    fitting = {size: new for size, new in changes.items() if new >= size or not has_indices(case)}
    operands = (
        replace(operand, shape=tuple(fitting.get(size, size) for size in operand.shape)) for operand in case.operands
    )
    return replace(case, operands=tuple(operands))
