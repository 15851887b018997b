"""Convolutions with few output channels, of images from outside the region with channels first.

Channels last, a register of output channels would be nearly empty, and the image would be transposed first. A
convolution without neighbourhood becomes a product of the filter with the pixels, in the order of the image. A
convolution with a single output channel keeps the channels first: neighbouring pixels are computed together. With many
input channels, a window larger than a pixel has the channels last: as measured, the gain is uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import product
from byoc_core.ir import Binding, IRModule, Value
from byoc_core.transform import RewriteGraph, rewrite_module

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.rejections import FLOATS
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["keeps_channels_first", "multiply_pixels"]

_FEW_RESULTS, _FEW_CHANNELS, _LEAST_WIDTH = 8, 32, 32
"""Maximum output channels of a product; input channels and pixels of a row worth a loop over neighbours."""


def multiply_pixels(module: IRModule) -> IRModule:
    """Return the module with products for convolutions with few results and without neighbourhood.

    The filter is constant; the sizes of the image are known.
    """
    return rewrite_module(module, {f"nn.conv{rank}d": (_multiply,) for rank in (1, 2, 3)})


def keeps_channels_first(binding: Binding, graph: RewriteGraph) -> bool:
    """Return whether a convolution is computed with channels first."""
    width = shape_of(binding.result)[-1]
    is_wide = isinstance(width, int) and width >= _LEAST_WIDTH and ints_of(binding, "strides")[-1] == 1
    return is_wide and _has_few_results(binding, graph, 1) and _has_small_filter(binding)


def _has_small_filter(binding: Binding) -> bool:
    """Return whether a filter has a window of a single element, or few input channels."""
    sizes = dict(zip(str(binding.attrs["kernel_layout"]), shape_of(binding.operands[1]), strict=True))
    channels, _ = sizes.pop("I"), sizes.pop("O")
    return all(size == 1 for size in sizes.values()) or (isinstance(channels, int) and channels <= _FEW_CHANNELS)


def _has_few_results(binding: Binding, graph: RewriteGraph, most: int) -> bool:
    """Return whether a convolution has at most this many results, of an image from outside with channels first."""
    image, weight = binding.operands
    if not str(binding.attrs["data_layout"]).startswith("NC") or graph.producer(image) is not None:
        return False
    results = shape_of(weight)[str(binding.attrs["kernel_layout"]).index("O")]
    return isinstance(results, int) and results <= most and int_of(binding, "groups") == 1 and dtype_of(image) in FLOATS


def _multiply(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    image, weight = binding.operands
    filter_, letters = graph.array(weight), str(binding.attrs["kernel_layout"])
    if filter_ is None or not _has_few_results(binding, graph, _FEW_RESULTS):
        return None
    taps = filter_.transpose(*(letters.index(letter) for letter in "OI"), *_spatial(letters))
    (results, channels, *window), (batch, _, *sizes) = taps.shape, shape_of(image)
    is_pointwise = all(size == 1 for size in (*window, *ints_of(binding, "strides")))
    if not is_pointwise or any(ints_of(binding, "padding")) or not graph.may_add(filter_.nbytes):
        return None
    if not all(isinstance(size, int) and size > 0 for size in (batch, *sizes)):
        return None
    pixels = graph.emit("reshape", (image,), {"shape": (batch, channels, product(sizes))}, name="pixels")
    matrix = graph.const(taps.reshape(results, channels))
    # The product bears the name of the result, by which schedules are offered and chosen.
    sums = graph.emit("matmul", (matrix, pixels), schedule=binding.schedule)
    return (graph.emit("reshape", (sums,), {"shape": (batch, results, *sizes)}, name="image"),)


def _spatial(letters: str) -> list[int]:
    """Return the axes of a filter other than the channels."""
    return [axis for axis, letter in enumerate(letters) if letter not in "OI"]
