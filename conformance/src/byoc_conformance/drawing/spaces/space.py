"""The space of an op's cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from byoc_core.dtypes import computing_dtypes
from byoc_core.ir import REQUIRED, AttrKind, AttrSpec, OpDef
from byoc_core.ops.cases import OpCase

from byoc_conformance.drawing.pairwise import Levels

__all__ = [
    "PALETTES",
    "SIGNS",
    "Space",
    "attr_levels",
    "axis_of",
    "has_indices",
    "has_sizes_among_elements",
    "schema_levels",
    "with_sign",
]

PALETTES = ((2, 3, 5, 4), (3, 17, 1, 8), (1, 403, 2, 7), (300, 2, 1, 5))
"""Sizes from the first axis to the last: small and distinct; 1, and a register's lanes plus 1; more than a block of a
loop. At rank 2 a large last size is odd, to test the tail behind the last whole register.
"""

SIGNS = ("positive", "negative")
"""Whether an axis is counted from the front or from the end."""


@dataclass(frozen=True, slots=True)
class Space:
    """The variable parts of an op's use.

    Attributes:
        factors: the levels of each factor, by name; the most common first, as needed by ``cover_pairs``.
        build: returns the case of a row of levels, ``None`` if incompatible. The op may refuse the case. The result
            depends on the levels alone: rows are also made by mixing the levels of two cases.
    """

    factors: Mapping[str, Sequence[Any]]
    build: Callable[[Levels], OpCase | None]


def schema_levels(op: OpDef, *without: str) -> dict[str, tuple[Any, ...]]:
    """Return the levels of an op's attributes by name, without excluded attributes and those without obvious levels.

    Args:
        op: the op.
        without: attributes with levels better known to the caller.
    """
    found = {spec.name: attr_levels(spec) for spec in op.attrs if spec.name not in without}
    return {name: levels for name, levels in found.items() if levels}


def attr_levels(spec: AttrSpec) -> tuple[Any, ...]:
    """Return the levels of an attribute, the default first; none for lists and other shape-dependent attributes."""
    if spec.choices:
        levels: tuple[Any, ...] = tuple(spec.choices)
    elif spec.kind is AttrKind.BOOL:
        levels = (False, True)
    elif spec.name == "epsilon":
        levels = (2.0**-40, 0.25)
    elif spec.kind is AttrKind.FLOAT:
        levels = (0.25, 1.5)  # exact in every dtype: the same threshold in all
    elif spec.kind is AttrKind.DTYPE:
        levels = tuple(computing_dtypes())
    else:
        return ()
    return levels if spec.default is REQUIRED else (spec.default, *(level for level in levels if level != spec.default))


def axis_of(position: str, rank: int) -> int | None:
    """Return the axis at a position (``"first"``, ``"middle"``, ``"last"``); ``None`` if the rank has no axis there."""
    if rank == 0 or (position == "middle" and rank < 3):
        return None
    return {"first": 0, "middle": rank // 2, "last": rank - 1}[position]


def with_sign(axis: int, rank: int, sign: str) -> int:
    """Return an axis counted from the front, or from the end."""
    return axis - rank if sign == "negative" else axis


def has_sizes_among_elements(op: OpDef) -> bool:
    """Return whether elements of an operand are sizes of another, as lengths of strings: sizes do not change alone."""
    return op.name == "ngram_counts" or (op.name.startswith("strings.") and op.name != "strings.take_spans")


def has_indices(case: OpCase) -> bool:
    """Return whether an operand holds integers with a limited range: indices, lengths, starts."""
    return any(operand.dtype is not None and operand.dtype.startswith("int") for operand in case.operands)
