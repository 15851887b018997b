"""Kits for backend authors: code that two backends would otherwise write twice.

``CSourceCodegen`` translates functions to C (its run half is ``byoc_core.runtime.CSourceModule``). ``GraphCodegen``
translates functions to typed graph documents for library-style engines (``byoc_core.runtime.GraphModule`` and
``GraphEngine``). ``CostTable`` estimates costs from measurements. Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from byoc_core.authoring.cost_table import CostTable
    from byoc_core.authoring.csource import CSourceCodegen, FunctionScope
    from byoc_core.authoring.graph import GraphCodegen, GraphTranslation

__all__ = ["CSourceCodegen", "CostTable", "FunctionScope", "GraphCodegen", "GraphTranslation"]

_HOMES = {
    "cost_table": ("CostTable",),
    "csource": ("CSourceCodegen", "FunctionScope"),
    "graph": ("GraphCodegen", "GraphTranslation"),
}


__getattr__ = lazy_names(__name__, _HOMES)
