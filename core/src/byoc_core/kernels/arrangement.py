"""Kernels that rearrange a matrix or an image: triangles, and blocks of pixels as channels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray

__all__ = ["KERNELS", "depth_to_space", "space_to_depth", "trilu"]


def trilu(x: NDArray, *, k: int, upper: bool) -> NDArray:
    """Gives the last two axes with zeros below (``upper``) or above the diagonal ``k``, which stays."""
    rows, columns = x.shape[-2:]
    offset = np.arange(columns) - np.arange(rows)[:, None]
    kept = offset >= k if upper else offset <= k
    return np.where(kept, x, np.zeros((), x.dtype))


def depth_to_space(x: NDArray, *, block_size: int, mode: str) -> NDArray:
    """Gives an image (N, C, H, W) with blocks of pixels in place of channels.

    Raises:
        ExecutionError: the square of the block size does not divide the channels.
    """
    n, c, h, w = x.shape
    b = block_size
    _check_blocks("depth_to_space", (c,), b * b)
    depth = c // (b * b)
    if mode == "DCR":
        blocks = x.reshape(n, b, b, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, depth, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, depth, h * b, w * b)


def space_to_depth(x: NDArray, *, block_size: int, mode: str) -> NDArray:
    """Gives an image (N, C, H, W) with channels in place of blocks of pixels: undoes :func:`depth_to_space`.

    Raises:
        ExecutionError: the block size does not divide height and width.
    """
    n, c, h, w = x.shape
    b = block_size
    _check_blocks("space_to_depth", (h, w), b)
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    blocks = blocks.transpose(0, 3, 5, 1, 2, 4) if mode == "DCR" else blocks.transpose(0, 1, 3, 5, 2, 4)
    return blocks.reshape(n, c * b * b, h // b, w // b)


def _check_blocks(op: str, sizes: tuple[int, ...], divisor: int) -> None:
    for size in sizes:
        if size % divisor:
            raise ExecutionError(
                f"op `{op}`", "an axis is no whole number of blocks", got=size, expected=f"a multiple of {divisor}"
            )


KERNELS: dict[str, Callable[..., NDArray]] = {
    "trilu": trilu,
    "depth_to_space": depth_to_space,
    "space_to_depth": space_to_depth,
}
