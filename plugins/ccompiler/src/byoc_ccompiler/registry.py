"""The table of kernel families: the only table leading from the name of an op to its compiler.

A new family is one more entry. No op may belong to two families, checked at import.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernels import (
    argmax_pooling,
    attention,
    axes,
    byte_products,
    conv2d,
    data_movement,
    deformable_columns,
    einsum,
    elementwise,
    extreme_indices,
    grid_sampling,
    indexing,
    layers,
    ordering,
    pooling,
    products,
    quantised_products,
    recurrence,
    region_alignment,
    resizing,
    rows,
    transposes,
)

__all__ = ["FAMILIES"]


def _by_op(*families: KernelFamily) -> Mapping[str, KernelFamily]:
    table: dict[str, KernelFamily] = {}
    for family in families:
        for op in family.ops:
            assert op not in table, op
            table[op] = family
    return MappingProxyType(table)


FAMILIES: Mapping[str, KernelFamily] = _by_op(
    elementwise.FAMILY,
    conv2d.FAMILY,
    products.FAMILY,
    byte_products.FAMILY,
    quantised_products.FAMILY,
    pooling.FAMILY,
    argmax_pooling.FAMILY,
    attention.FAMILY,
    *rows.FAMILIES,
    transposes.FAMILY,
    *data_movement.FAMILIES,
    *indexing.FAMILIES,
    ordering.FAMILY,
    axes.FAMILY,
    extreme_indices.FAMILY,
    einsum.FAMILY,
    resizing.FAMILY,
    grid_sampling.FAMILY,
    deformable_columns.FAMILY,
    region_alignment.FAMILY,
    *layers.FAMILIES,
    recurrence.FAMILY,
)
"""The family of each supported op, by the op's name."""
