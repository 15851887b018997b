"""The measured costs of ops, shipped with the package (``python -m benchmarks.collect_costs`` of the repository)."""

from __future__ import annotations

import functools
from importlib.resources import files

from byoc_core.authoring.cost_table import CostTable

__all__ = ["measured_costs"]


@functools.cache
def measured_costs(register_nbytes: int = 64) -> CostTable:
    """Return the table of measurements on one thread and on two.

    Args:
        register_nbytes: the size of a vector register of the target: 64 for AVX-512; other targets have the table of
            AVX2.
    """
    name = "costs.json" if register_nbytes >= 64 else "costs_avx2.json"
    return CostTable.load(files("byoc_ccompiler") / name)
