"""The measured costs of ops, shipped with the package (``python -m benchmarks.collect_costs`` of the repository)."""

from __future__ import annotations

import functools
from importlib.resources import files

from byoc_core.authoring.cost_table import CostTable

__all__ = ["measured_costs"]


@functools.cache
def measured_costs(register_nbytes: int = 64, *, is_amd: bool = False) -> CostTable:
    """Return the table of measurements on one thread and on two.

    If a kernel is replaced, its rows are scaled: the time of the new kernel over the time of the former kernel, both
    measured on AMD AVX-512 in turn, multiplies the row of each table, until the table is measured anew.

    Args:
        register_nbytes: the size of a vector register of the target: 64 for AVX-512; other targets have the table of
            AVX2.
        is_amd: whether the processor is of AMD: with AVX-512, these have a table of their own.
    """
    name = "costs_avx2.json" if register_nbytes < 64 else "costs_avx512_amd.json" if is_amd else "costs_avx512.json"
    return CostTable.load(files("byoc_ccompiler") / name)
