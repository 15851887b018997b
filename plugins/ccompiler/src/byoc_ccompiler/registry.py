"""The table of kernel families: one place where an op's name leads to what compiles it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernels import conv2d, movement, pointwise, pooling, products, reductions

__all__ = ["FAMILIES"]


def _by_op(*families: KernelFamily) -> Mapping[str, KernelFamily]:
    table: dict[str, KernelFamily] = {}
    for family in families:
        for op in family.ops:
            assert op not in table, op
            table[op] = family
    return MappingProxyType(table)


FAMILIES: Mapping[str, KernelFamily] = _by_op(
    pointwise.FAMILY,
    conv2d.FAMILY,
    *products.FAMILIES,
    pooling.FAMILY,
    *reductions.FAMILIES,
    movement.FAMILY,
)
"""The family of every op that has one."""
