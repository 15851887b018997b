"""Depthwise convolutions in kernels whose bodies are text."""

from __future__ import annotations

from byoc_core.authoring.csource import c_type

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.depthwise import filter_taps
from byoc_ccompiler.kernels.depthwise_block import DepthwiseBlock
from byoc_ccompiler.kernels.epilogue_text import TextTile

__all__ = ["sums_tile", "taps_lines"]


def taps_lines(kernel: Kernel, geometry: ConvolutionGeometry) -> list[str]:
    """Return the declaration of ``taps``, a constant filter tap by tap, channels side by side."""
    taps, _ = filter_taps(kernel, geometry)
    return [f"  const {c_type(geometry.dtype)} *const taps = {taps.name};"]


def sums_tile(block: DepthwiseBlock, leading: tuple[str, ...]) -> TextTile:
    """Return the sums of one row ``y`` of a block, and one chunk, as what follows the convolution reads them."""
    sums = f"(sums + (y - y0) * {block.columns * block.chunk})"
    full = block.chunk if block.geometry.channels % block.chunk == 0 else None
    return TextTile(sums, str(block.chunk), "x0", "x_count", "c0", "c_count", full, leading)
