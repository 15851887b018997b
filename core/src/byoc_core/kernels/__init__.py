"""The numpy reference kernels: what every op means, as code.

A kernel takes arrays and the op's normalised attributes (sizes as ints) and gives an array, or a tuple of arrays where
the op has several results. It computes in the dtype it is given (floating-point types below 32 bits: in float32,
rounded once), gives the shape and dtype that the op's type rule promises, never writes to its inputs, and never warns.
Its result may share memory with an input. The functions of the modules here are what kernels are made of: numpy may
warn in them. Kernels serve the host backend and constant folding, and they are the oracle
that backends are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from byoc_core.kernels import (
    activations,
    adaptive_pooling,
    arrangement,
    attention,
    border,
    convolution,
    creation,
    cumulative,
    data_dependent,
    einsum,
    elementwise,
    functions,
    indexing,
    linear,
    normalisation,
    ordering,
    pooling,
    quantisation,
    recurrence,
    reduction,
    resize,
    scatter,
    shape,
    slices,
    unit_axes,
)
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray

__all__ = ["KERNELS", "Kernel"]

Kernel = Callable[..., NDArray | tuple[NDArray, ...]]
"""``kernel(*inputs, **attributes)`` gives one array, or a tuple of arrays."""

_MADE_OF: Mapping[str, Kernel] = {
    **elementwise.KERNELS,
    **functions.KERNELS,
    **activations.KERNELS,
    **linear.KERNELS,
    **convolution.KERNELS,
    **pooling.KERNELS,
    **adaptive_pooling.KERNELS,
    **unit_axes.KERNELS,
    **normalisation.KERNELS,
    **shape.KERNELS,
    **slices.KERNELS,
    **indexing.KERNELS,
    **scatter.KERNELS,
    **creation.KERNELS,
    **reduction.KERNELS,
    **resize.KERNELS,
    **recurrence.KERNELS,
    **einsum.KERNELS,
    **quantisation.KERNELS,
    **attention.KERNELS,
    **ordering.KERNELS,
    **cumulative.KERNELS,
    **arrangement.KERNELS,
    **border.KERNELS,
    **data_dependent.KERNELS,
}

KERNELS: Mapping[str, NumpyKernel] = MappingProxyType(
    {name: made if isinstance(made, NumpyKernel) else NumpyKernel(made) for name, made in _MADE_OF.items()}
)
"""The reference kernel of every op that computes, by op name."""
