"""The measured costs of ops, shipped with the package (``python -m benchmarks.collect_costs`` of the repository)."""

from __future__ import annotations

import functools
from importlib.resources import files

from byoc_core.authoring.cost_table import CostTable

__all__ = ["measured_costs"]


@functools.cache
def measured_costs() -> CostTable:
    """Return the table of measurements on one thread and on two."""
    return CostTable.load(files("byoc_dnnl") / "costs.json")
