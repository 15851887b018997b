"""The importers of ONNX ops, one file per family.

Each family has a table ``IMPORTERS`` of functions by ONNX name, of the standard domain or of the family's ``DOMAIN``. A
name must stand in a single table of a domain: of two importers, the later is taken without a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from byoc_core.frontend.onnx.node_context import NodeImporter, ShapeImporter
from byoc_core.frontend.onnx.ops import (
    arrangement,
    attention,
    columns,
    composed_functions,
    constants,
    control_flow,
    convolution,
    data_dependent,
    data_movement,
    detection,
    elementwise,
    flex_attention,
    gradients,
    indexing,
    integer_products,
    linear,
    normalisation,
    optimisers,
    optionals,
    ordering,
    padding,
    quantisation,
    random_numbers,
    recurrence,
    reduction,
    resize,
    scan,
    sequences,
    shape_arithmetic,
    shape_data_movement,
    spectral,
    texts,
)
from byoc_core.frontend.onnx.ops.spelled import spelled_importers
from byoc_core.frontend.onnx_names import OnnxName
from byoc_core.opset.opdef import OpDef

__all__ = ["NODE_IMPORTERS", "PREVIEW_IMPORTERS", "SHAPE_IMPORTERS", "node_importers"]

NODE_IMPORTERS: Mapping[str, NodeImporter] = MappingProxyType(
    {
        **constants.IMPORTERS,
        **control_flow.IMPORTERS,
        **convolution.IMPORTERS,
        **elementwise.IMPORTERS,
        **composed_functions.IMPORTERS,
        **integer_products.IMPORTERS,
        **linear.IMPORTERS,
        **data_movement.IMPORTERS,
        **indexing.IMPORTERS,
        **normalisation.IMPORTERS,
        **reduction.IMPORTERS,
        **resize.IMPORTERS,
        **recurrence.IMPORTERS,
        **scan.IMPORTERS,
        **sequences.IMPORTERS,
        **optionals.IMPORTERS,
        **quantisation.IMPORTERS,
        **attention.IMPORTERS,
        **ordering.IMPORTERS,
        **arrangement.IMPORTERS,
        **padding.IMPORTERS,
        **data_dependent.IMPORTERS,
        **detection.IMPORTERS,
        **random_numbers.IMPORTERS,
        **spectral.IMPORTERS,
        **columns.IMPORTERS,
        **texts.IMPORTERS,
    }
)
"""Importers for ops of the standard domain without a direct spelling of an op, by ONNX name."""

PREVIEW_IMPORTERS: Mapping[OnnxName, NodeImporter] = MappingProxyType(
    {
        (family.DOMAIN, name): importer
        for family in (flex_attention, gradients, optimisers)
        for name, importer in family.IMPORTERS.items()
    }
)
"""Importers for ops of ONNX's preview domains, by domain and name."""

SHAPE_IMPORTERS: Mapping[str, ShapeImporter] = MappingProxyType(
    {**shape_arithmetic.IMPORTERS, **shape_data_movement.IMPORTERS}
)
"""Importers for ops on known shapes; tried first if all inputs are known shapes."""


def node_importers(ops: Mapping[str, OpDef]) -> Mapping[OnnxName, NodeImporter]:
    """Return the importer of every ONNX operator supported with these ops, by domain and name.

    An op with a declared ONNX spelling needs no importer here; its spelling is ignored if the core has an importer.

    Raises:
        IRError: two ops declare the same spelling.
    """
    return MappingProxyType(
        {
            **spelled_importers(ops),
            **PREVIEW_IMPORTERS,
            **{("", name): importer for name, importer in NODE_IMPORTERS.items()},
        }
    )
