"""The families of ops, one module each, loaded when one of their ops is asked for.

What checks a graph document from a file needs the rules of a few ops, and no registry of all.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from byoc_core.kernels import FAMILY_OF_KERNEL

if TYPE_CHECKING:
    from byoc_core.opset.opdef import OpDef

__all__ = ["FAMILIES", "find_op", "ops_of"]

FAMILIES = (
    "elementwise",
    "functions",
    "activations",
    "linear",
    "convolution",
    "pooling",
    "adaptive_pooling",
    "unit_axes",
    "normalisation",
    "nn",
    "shape",
    "slices",
    "indexing",
    "scatter",
    "creation",
    "reduction",
    "resize",
    "recurrence",
    "einsum",
    "quantisation",
    "attention",
    "ordering",
    "cumulative",
    "arrangement",
    "border",
    "data_dependent",
)
"""The modules that define ops, in the order of the registry."""


@cache
def ops_of(family: str) -> dict[str, OpDef]:
    """Return the ops of a family, by name."""
    return {op.name: op for op in import_module(f"byoc_core.opset.{family}").OPS}


@cache
def find_op(name: str) -> OpDef | None:
    """Return the op of that name that has a kernel; ``None`` where there is none.

    Cost: the import of one family, or of two for the few ops whose kernel stands in another family.
    """
    family = FAMILY_OF_KERNEL.get(name)
    if family is None:
        return None
    return next((ops_of(home)[name] for home in dict.fromkeys((family, *FAMILIES)) if name in ops_of(home)), None)
