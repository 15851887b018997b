"""Kits for backend authors: what two backends would write twice.

``CSourceCodegen`` turns functions into C (its run half is ``byoc_core.runtime.CSourceModule``); ``GraphCodegen`` turns
them into typed graph documents for library-style engines (``byoc_core.runtime.GraphModule`` and ``GraphEngine``).
Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.authoring.csource import CSourceCodegen, FunctionScope
    from byoc_core.authoring.graph import GraphCodegen, GraphTranslation

__all__ = ["CSourceCodegen", "FunctionScope", "GraphCodegen", "GraphTranslation"]

_HOMES = {"csource": ("CSourceCodegen", "FunctionScope"), "graph": ("GraphCodegen", "GraphTranslation")}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
