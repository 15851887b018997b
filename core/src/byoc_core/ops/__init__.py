"""The ops that byoc knows: one :class:`~byoc_core.ir.opdef.OpDef` each, grouped by family."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.ir.opdef import OpRegistry
    from byoc_core.ops.builder import FunctionBuilder

__all__ = ["FunctionBuilder", "default_ops"]


@cache
def default_ops() -> OpRegistry:
    """Gives the registry of byoc's own ops, the structural ones of the IR included; always the same object."""
    from byoc_core.ir.opdef import OpRegistry
    from byoc_core.ir.structural import STRUCTURAL_OPS
    from byoc_core.ops import (
        activations,
        adaptive_pooling,
        arrangement,
        attention,
        border,
        convolution,
        creation,
        cumulative,
        data_dependent,
        einsum,
        elementwise,
        functions,
        indexing,
        linear,
        nn,
        normalisation,
        ordering,
        pooling,
        quantisation,
        recurrence,
        reduction,
        resize,
        scatter,
        shape,
        slices,
        unit_axes,
    )

    families = (
        elementwise,
        functions,
        activations,
        linear,
        convolution,
        pooling,
        adaptive_pooling,
        unit_axes,
        normalisation,
        nn,
        shape,
        slices,
        indexing,
        scatter,
        creation,
        reduction,
        resize,
        recurrence,
        einsum,
        quantisation,
        attention,
        ordering,
        cumulative,
        arrangement,
        border,
        data_dependent,
    )
    return OpRegistry([*(op for family in families for op in family.OPS), *STRUCTURAL_OPS])


def __getattr__(name: str) -> object:
    if name != "FunctionBuilder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from byoc_core.ops.builder import FunctionBuilder

    return FunctionBuilder
