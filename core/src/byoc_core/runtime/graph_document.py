"""Deprecated since 0.2: the typed graph document, now in :mod:`byoc_core.runtime.graph.document`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.runtime.graph.document import (
        GraphAttr,
        GraphConstant,
        GraphDocument,
        GraphFunction,
        GraphNode,
        GraphTensor,
        KernelOrigin,
        attr_symbols,
        print_document,
    )

__all__ = [
    "GraphAttr",
    "GraphConstant",
    "GraphDocument",
    "GraphFunction",
    "GraphNode",
    "GraphTensor",
    "KernelOrigin",
    "attr_symbols",
    "print_document",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"`{__name__}` is deprecated since byoc-core 0.2 and will be removed in 0.4: "
        f"use `byoc_core.runtime.graph.document`.",
        DeprecationWarning,
        stacklevel=2,
    )
    from byoc_core.runtime.graph import document

    return getattr(document, name)
