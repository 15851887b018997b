"""The hook of importers, and the importers of all operators by domain and name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from byoc_core.frontend.hooks import OnnxImporters, hookimpl

from byoc_mlops import encoders, linear, maps, preprocessing, support_vectors, tokens, trees
from byoc_mlops.ops import OPS

if TYPE_CHECKING:
    from byoc_core.frontend.onnx import NodeImporter

__all__ = ["DOMAIN", "IMPORTERS"]

DOMAIN = "ai.onnx.ml"
"""The domain of the operators; the tokenizer of ONNX Runtime, written by skl2onnx, has another."""

IMPORTERS: Mapping[tuple[str, str], NodeImporter] = MappingProxyType(
    {
        (domain, name): importer
        for domain, modules in (
            (DOMAIN, (encoders, linear, maps, preprocessing, support_vectors, trees)),
            ("com.microsoft", (tokens,)),
        )
        for module in modules
        for name, importer in module.IMPORTERS.items()
    }
)
"""The importers, by domain and name."""


@hookimpl
def byoc_onnx_importers() -> OnnxImporters:
    """Return the importers and the ops of the package."""
    return OnnxImporters(IMPORTERS, OPS)
