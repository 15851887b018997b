"""The numpy reference kernels: what every op means, as code.

A kernel takes arrays and the op's normalised attributes (sizes as ints) and gives an array, or a tuple of arrays where
the op has several results. It computes in the dtype it is given (floating-point types below 32 bits: in float32,
rounded once), gives the shape and dtype that the op's type rule promises, never writes to its inputs, and never warns.
Its result may share memory with an input. Kernels serve the host backend and constant folding, and they are the oracle
that backends are compared with.

Kernels are made of the functions of the modules here, in which numpy may warn. A module's table names these as they
are, or as a :class:`~byoc_core.kernels.numpy_kernel.NumpyKernel` that says how host regions call them cheaply.
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

__all__ = ["FAMILY_OF_KERNEL", "KERNELS", "Kernel"]

Kernel = Callable[..., NDArray | tuple[NDArray, ...]]
"""``kernel(*inputs, **attributes)`` gives one array, or a tuple of arrays."""

_FAMILIES = (
    elementwise,
    functions,
    activations,
    linear,
    convolution,
    pooling,
    adaptive_pooling,
    unit_axes,
    normalisation,
    shape,
    slices,
    indexing,
    scatter,
    creation,
    reduction,
    resize,
    recurrence,
    einsum,
    quantisation,
    attention,
    ordering,
    cumulative,
    arrangement,
    border,
    data_dependent,
)

FAMILY_OF_KERNEL: Mapping[str, str] = MappingProxyType(
    {name: module.__name__.rpartition(".")[2] for module in _FAMILIES for name in module.KERNELS}
)
"""The module here that has the kernel of an op, by op name."""

_MADE_OF: Mapping[str, Kernel] = {name: made for module in _FAMILIES for name, made in module.KERNELS.items()}

KERNELS: Mapping[str, NumpyKernel] = MappingProxyType(
    {name: made if isinstance(made, NumpyKernel) else NumpyKernel(made) for name, made in _MADE_OF.items()}
)
"""The reference kernel of every op that computes, by op name."""
