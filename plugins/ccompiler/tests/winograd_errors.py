"""The error bound of a convolution by Winograd's minimal filtering."""

from __future__ import annotations

from typing import Any

import numpy as np
from byoc_ccompiler.kernels.winograd import TRANSFORM_ROUNDINGS
from byoc_ccompiler.kernels.winograd_plan import minimal_filter
from byoc_core.runtime.module import NDArray

__all__ = ["error_bound"]


def error_bound(image: NDArray, weight: NDArray, padding: tuple[int, ...], num_outputs: int) -> Any:
    """Return ``gamma_n |A^T| [(|G| |g| |G^T|) * (|B^T| |d| |B|)] |A|``, ``n`` counting all roundings of an output."""
    algorithm = minimal_filter(num_outputs)
    size, num = num_outputs, algorithm.num_inputs
    top, left, bottom, right = padding
    height, width = image.shape[1] + top + bottom - 2, image.shape[2] + left + right - 2
    down, across = -(-height // size), -(-width // size)
    ends = ((0, 0), (top, down * size + 2 - image.shape[1] - top), (left, across * size + 2 - image.shape[2] - left))
    padded = np.pad(np.abs(image.astype("float64")), (*ends, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (num, num), axis=(1, 2))[:, ::size, ::size]
    inputs, taps, outputs = (np.abs(m) for m in (algorithm.inputs, algorithm.taps, algorithm.outputs))
    transformed = np.einsum("ay,nhwcyx,bx->nhwcab", inputs, windows, inputs, optimize=True)
    factors = np.einsum("ay,ocyx,bx->ocab", taps, np.abs(weight.astype("float64")), taps, optimize=True)
    products = np.einsum("nhwcab,ocab->nhwoab", transformed, factors, optimize=True)
    magnitude = np.einsum("ya,nhwoab,xb->nhywxo", outputs, products, outputs, optimize=True)
    merged = magnitude.reshape(len(image), down * size, across * size, weight.shape[0])[:, :height, :width]
    unit = float(np.finfo(image.dtype).eps) / 2
    roundings = image.shape[3] + TRANSFORM_ROUNDINGS[num_outputs]
    # The oracle in float64 has rounded too.
    slack = 2.0 if image.dtype == np.float64 else 1.0 + 1e-6
    return slack * roundings * unit / (1 - roundings * unit) * merged
