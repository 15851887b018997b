"""The importers of all operators of the package, by domain and name: the plugin."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from byoc_core.frontend.hooks import OnnxImporters, hookimpl
from byoc_core.frontend.onnx import NodeImporter

from byoc_msops import (
    activations,
    attention,
    convolution,
    data_movement,
    distances,
    group_normalisation,
    grouped_attention,
    multi_head_attention,
    normalisation,
    packed_weights,
    products,
    quantisation,
    quantised_elementwise,
    quantised_images,
    quantised_products,
    rotary,
    spectra,
)

__all__ = ["DOMAIN", "IMPORTERS", "byoc_onnx_importers"]

DOMAIN = "com.microsoft"
"""The domain of the operators."""

_MODULES = (
    activations,
    attention,
    convolution,
    data_movement,
    distances,
    group_normalisation,
    grouped_attention,
    multi_head_attention,
    normalisation,
    packed_weights,
    products,
    quantisation,
    quantised_elementwise,
    quantised_images,
    quantised_products,
    rotary,
    spectra,
)

IMPORTERS: Mapping[tuple[str, str], NodeImporter] = MappingProxyType(
    {
        **{(DOMAIN, name): importer for module in _MODULES for name, importer in module.IMPORTERS.items()},
        **{("", name): importer for name, importer in normalisation.STANDARD_IMPORTERS.items()},
    }
)
"""The importers, by domain and name."""


@hookimpl
def byoc_onnx_importers() -> OnnxImporters:
    """Return the importers of the package."""
    return OnnxImporters(IMPORTERS)
