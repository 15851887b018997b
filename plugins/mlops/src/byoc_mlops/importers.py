"""The importers of all operators of the package, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from byoc_mlops import encoders, linear, preprocessing, support_vectors, trees
from byoc_mlops.importing import NodeImporter

__all__ = ["DOMAIN", "IMPORTERS"]

DOMAIN = "ai.onnx.ml"
"""The domain of the operators."""

IMPORTERS: Mapping[tuple[str, str], NodeImporter] = MappingProxyType(
    {
        (DOMAIN, name): importer
        for module in (encoders, linear, preprocessing, support_vectors, trees)
        for name, importer in module.IMPORTERS.items()
    }
)
"""The importers, by domain and name."""
