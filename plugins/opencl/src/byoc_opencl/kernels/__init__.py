"""The kernels of ops: statements of the core's C, printed as OpenCL C."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_opencl.kernels import (
    attention,
    convolution,
    elementwise,
    movement,
    normalisation,
    pooling,
    products,
    reductions,
)
from byoc_opencl.kernels.family import KernelFamily

__all__ = ["FAMILIES"]

FAMILIES: Mapping[str, KernelFamily] = {
    op: family
    for family in (
        elementwise.FAMILY,
        products.FAMILY,
        convolution.FAMILY,
        *pooling.FAMILIES,
        *reductions.FAMILIES,
        *normalisation.FAMILIES,
        *attention.FAMILIES,
        *movement.FAMILIES,
    )
    for op in sorted(family.ops)
}
"""The family of each op with a kernel."""
