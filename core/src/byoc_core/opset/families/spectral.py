"""The discrete Fourier transform.

Complex numbers are pairs along the last axis: real part, imaginary part.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.dims import Dim
from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray, working_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import NORM
from byoc_core.opset.type_rules import FLOAT_KINDS, require_kind, resolve_axis
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]

_UNKNOWN_LOG2 = 10
"""The assumed binary logarithm of a symbolic length, for the count of operations."""
_TRANSFORMS: dict[tuple[bool, bool], Callable[..., NDArray]] = {
    (False, False): np.fft.fft,
    (False, True): np.fft.rfft,
    (True, False): np.fft.ifft,
    (True, True): np.fft.irfft,
}
"""The transforms, by ``inverse`` and ``onesided``."""


def _dft(x: NDArray, *, axis: int, length: int | None, inverse: bool, onesided: bool) -> NDArray:
    """Return the transform along an axis; the signal is cut, or padded with zeros, to the length.

    Raises:
        ExecutionError: the last axis holds no numbers, the transform has no elements, or a one-sided transform has a
            complex signal.
    """
    parts, axis = x.shape[-1], axis % x.ndim
    if parts not in (1, 2):
        raise ExecutionError(
            "op `dft`", "has a last axis of a wrong size", got=parts, expected="1 (real) or 2 (complex)"
        )
    if onesided and not inverse and parts == 2:
        raise ExecutionError("op `dft`", "is one-sided with a complex signal", expected="a real signal")
    count = _default_length(x.shape[axis], is_real_result=inverse and onesided) if length is None else length
    if count < 1:
        raise ExecutionError("op `dft`", "has a length below 1", got=count)
    real = x.astype(working_dtype(x.dtype), copy=False)
    numbers = (
        real[..., 0] if parts == 1 else np.ascontiguousarray(real).view(np.result_type(real, np.complex64))[..., 0]
    )
    result = _TRANSFORMS[inverse, onesided](numbers, n=count, axis=axis)
    planes = [result] if inverse and onesided else [result.real, result.imag]
    return np.stack(planes, axis=-1).astype(x.dtype, copy=False)


def _default_length(size: int, *, is_real_result: bool) -> int:
    return 2 * (size - 1) if is_real_result else size


def _infer_dft(context: TypeContext) -> tuple[Type, ...]:
    type_, shape, attrs = require_kind(context, 0, FLOAT_KINDS), context.shape(0), context.attrs
    axis = resolve_axis(context, attrs["axis"], len(shape))
    if axis == len(shape) - 1:
        raise context.error("transforms the axis of real and imaginary parts", got=attrs["axis"])
    parts = shape[-1]
    if isinstance(parts, int) and parts not in (1, 2):
        raise context.error(f"axis {len(shape) - 1} has size {parts}", operand=0, expected="1 (real) or 2 (complex)")
    inverse, onesided = attrs["inverse"], attrs["onesided"]
    if onesided and not inverse and parts == 2:
        raise context.error("is complex, and the transform one-sided", operand=0, expected="a real signal")
    length = _length(shape[axis], attrs["length"], is_real_result=inverse and onesided)
    if isinstance(length, int) and length < 1:
        raise context.error("has a length below 1", got=length)
    size = length // 2 + 1 if onesided and not inverse else length
    numbers = 1 if onesided and inverse else 2
    return (TensorType((*shape[:axis], size, *shape[axis + 1 : -1], numbers), type_.dtype),)


def _length(size: Dim, length: Dim | None, *, is_real_result: bool) -> Dim:
    if length is not None:
        return length
    return 2 * (size - 1) if is_real_result else size


def _dft_flops(context: OpContext) -> Dim:
    """Return ``5 n log2(n)`` operations for each complex transform of length ``n``, half for real numbers.

    Source: the convention of FFTW's benchmarks (M. Frigo and S. G. Johnson, benchFFT).
    """
    shape, attrs = context.operand_shape(), context.attrs
    if not shape:
        return 0
    axis = attrs["axis"] % len(shape)
    is_real_result = attrs["inverse"] and attrs["onesided"]
    length = _length(shape[axis], attrs["length"], is_real_result=is_real_result)
    levels = max((length - 1).bit_length(), 1) if isinstance(length, int) else _UNKNOWN_LOG2
    transforms: Dim = 1
    for position, size in enumerate(shape[:-1]):
        transforms = transforms * (1 if position == axis else size)
    is_half = is_real_result or shape[-1] == 1
    return transforms * length * 5 * levels // (2 if is_half else 1)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "dft",
        (OperandSpec("x"),),
        _infer_dft,
        attrs=(
            AttrSpec("axis", AttrKind.INT, -2, doc="The axis of the signal; not the last."),
            AttrSpec(
                "length",
                AttrKind.DIM,
                None,
                doc="The length of the signal: the signal is cut, or padded with zeros. `None`: the size of the axis; "
                "if inverse and one-sided, twice the size less 1.",
            ),
            AttrSpec(
                "inverse", AttrKind.BOOL, False, doc="Whether to return the inverse transform, divided by length."
            ),
            AttrSpec(
                "onesided",
                AttrKind.BOOL,
                False,
                doc="Whether only the first ``length // 2 + 1`` numbers of the spectrum of a real signal are present.",
            ),
        ),
        flops=_dft_flops,
        kernel=NumpyKernel(_dft),
        rounding=NORM,
        cases=lambda: (
            example((2, 16, 1), onesided=True),
            example((3, 12, 2)),
            example((2, 9, 5, 2), axis=1, length=14, inverse=True, onesided=True),
            example((2, 10, 3, 2), axis=1, length=7, inverse=True),
        ),
        doc="Return the discrete Fourier transform along an axis.\n\n"
        "Shapes: ``(..., n, ..., c)``, ``c`` 1 for real numbers and 2 for real and imaginary parts; the result is "
        "``(..., m, ..., 2)``, ``m`` the length, or ``length // 2 + 1`` if one-sided; if inverse and one-sided, the "
        "result is real, ``(..., length, ..., 1)``.",
    ),
)
"""The family's ops."""
