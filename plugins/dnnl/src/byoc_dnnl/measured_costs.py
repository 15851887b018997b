"""The measured costs of ops, shipped with the package (``python -m benchmarks.collect_costs`` of the repository)."""

from __future__ import annotations

import functools
from importlib.resources import files

from byoc_core.authoring.cost_table import CostTable

from byoc_dnnl.capi import Isa

__all__ = ["measured_costs"]


@functools.cache
def measured_costs(isa: int = Isa.AVX512_CORE) -> CostTable:
    """Return the table of measurements on one thread and on two.

    Args:
        isa: the instruction sets usable by the library; without AVX-512 the table is of AVX2.
    """
    name = "costs.json" if isa & Isa.AVX512_CORE == Isa.AVX512_CORE else "costs_avx2.json"
    return CostTable.load(files("byoc_dnnl") / name)
