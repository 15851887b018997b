"""The importers of all operators of the package, by domain and name: the plugin."""

from __future__ import annotations

from byoc_core.frontend.hooks import OnnxImporters, hookimpl

from byoc_msops import (
    activations,
    attention,
    grouped_attention,
    multi_head_attention,
    normalisation,
    products,
    rotary,
)

__all__ = ["DOMAIN", "byoc_onnx_importers"]

DOMAIN = "com.microsoft"
"""The domain of the operators."""

_MODULES = (activations, attention, grouped_attention, multi_head_attention, normalisation, products, rotary)


@hookimpl
def byoc_onnx_importers() -> OnnxImporters:
    """Return the importers of all modules."""
    own = {(DOMAIN, name): importer for module in _MODULES for name, importer in module.IMPORTERS.items()}
    added = {("", name): importer for name, importer in normalisation.STANDARD_IMPORTERS.items()}
    return OnnxImporters({**own, **added})
