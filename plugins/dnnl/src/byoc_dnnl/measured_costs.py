"""The measured costs of ops, shipped with the package (``python -m benchmarks.collect_costs`` of the repository)."""

from __future__ import annotations

import functools
from importlib.resources import files

from byoc_core.authoring.cost_table import CostTable

from byoc_dnnl.capi import Isa

__all__ = ["measured_costs"]


@functools.cache
def measured_costs(isa: int = Isa.AVX512_CORE, *, is_amd: bool = False) -> CostTable:
    """Return the table of measurements on one thread and on two.

    Args:
        isa: the instruction sets usable by the library; without AVX-512 the table is of AVX2.
        is_amd: whether the processor is of AMD: with AVX-512, these have a table of their own.
    """
    has_avx512 = isa & Isa.AVX512_CORE == Isa.AVX512_CORE
    name = "costs_avx2.json" if not has_avx512 else "costs_avx512_amd.json" if is_amd else "costs_avx512.json"
    return CostTable.load(files("byoc_dnnl") / name)
