"""The importers of ONNX ops, one file per family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from byoc_core.frontend.onnx.node_context import NodeImporter, ShapeImporter
from byoc_core.frontend.onnx.ops import (
    arrangement,
    attention,
    constants,
    convolution,
    elementwise,
    functions,
    indexing,
    integer_products,
    linear,
    movement,
    normalisation,
    ordering,
    padding,
    quantisation,
    recurrence,
    reduction,
    resize,
    shape_arithmetic,
)

__all__ = ["NODE_IMPORTERS", "SHAPE_IMPORTERS"]

NODE_IMPORTERS: Mapping[str, NodeImporter] = MappingProxyType(
    {
        **constants.IMPORTERS,
        **convolution.IMPORTERS,
        **elementwise.IMPORTERS,
        **functions.IMPORTERS,
        **integer_products.IMPORTERS,
        **linear.IMPORTERS,
        **movement.IMPORTERS,
        **indexing.IMPORTERS,
        **normalisation.IMPORTERS,
        **reduction.IMPORTERS,
        **resize.IMPORTERS,
        **recurrence.IMPORTERS,
        **quantisation.IMPORTERS,
        **attention.IMPORTERS,
        **ordering.IMPORTERS,
        **arrangement.IMPORTERS,
        **padding.IMPORTERS,
    }
)
"""The importer of every op of the standard domain that is imported, by ONNX name."""

SHAPE_IMPORTERS: Mapping[str, ShapeImporter] = shape_arithmetic.IMPORTERS
"""How ops compute on known shapes; tried first, where all inputs are known shapes."""
