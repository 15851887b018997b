"""Views of images in convolutions (also transposed), and the choice of oneDNN's implementations.

Offered all layouts, oneDNN 3.2 chooses row-major layouts and its general matrix product for groups of few channels, and
for depthwise convolutions along a single axis. For blocked images of few channels, it chooses channels-last. Better
implementations for all these cases exist on explicit request (``docs/notes/convolutional-networks.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Isa
from byoc_dnnl.lowerings.named_primitives import implementations

if TYPE_CHECKING:
    from byoc_core.runtime.graph.document import GraphTensor

    from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc
    from byoc_dnnl.lowerings.named_primitives import NamedPrimitive
    from byoc_dnnl.planner import Planner
    from byoc_dnnl.post_ops import PostOp

__all__ = [
    "ImageAxes",
    "Layout",
    "NumberedOffer",
    "Offer",
    "make_channels_last",
    "make_image",
    "named_images",
    "stays_in_blocks",
]

_BLOCK = 16
"""The number of channels in a block of oneDNN's kernels for AVX-512."""

_FEW_CHANNELS = (_BLOCK, 2 * _BLOCK)
"""The numbers of channels of an image that stays in blocks."""

_WIDE = 28
"""For wider results of several images oneDNN has another kernel, made for several blocks of outputs."""

Layout = Callable[[Sequence[int], str], "MemoryDesc"]
"""A function from sizes and a dtype to a description."""

Offer = Callable[[Layout, Sequence["PostOp"]], "PrimitiveDesc | None"]
"""A function from a layout and post-ops to a primitive for images."""

NumberedOffer = Callable[[Layout, Sequence["PostOp"], int], "PrimitiveDesc | None"]
"""The same, passing over a number of implementations."""


@dataclass(frozen=True, slots=True)
class ImageAxes:
    """The axes of a call's images and of the primitive: images, channels, and axes of windows.

    Attributes:
        order: the call's axis for each axis of the primitive, without the height perhaps added by the primitive.
        is_lifted: whether the primitive sees the single axis of windows as the rows of images of height 1, as required
            by depthwise convolutions of oneDNN.
    """

    order: tuple[int, ...]
    is_lifted: bool

    def lifted(self, numbers: Sequence[int], height_number: int) -> tuple[int, ...]:
        """Return numbers for all axes, or all axes of windows, with the number for the height inserted if lifted."""
        return (*numbers[:-1], height_number, *numbers[-1:]) if self.is_lifted else tuple(numbers)

    def sizes(self, image: GraphTensor) -> tuple[int, ...]:
        """Return the sizes of an image of the call as seen by the primitive."""
        sizes = sizes_of(image)
        return self.lifted([sizes[axis] for axis in self.order], 1)

    def to_primitive(self, desc: MemoryDesc) -> MemoryDesc | None:
        """Return a description of the call's axes with the axes of the primitive."""
        view = desc.permuted(self.order)
        return view.reshaped(self.lifted(view.sizes, 1)) if self.is_lifted else view

    def to_value(self, desc: MemoryDesc) -> MemoryDesc:
        """Return a description of the primitive's axes with the axes of the call."""
        view: MemoryDesc | None = desc
        if self.is_lifted:
            *outer, _, last = desc.sizes
            view = desc.reshaped((*outer, last))
        assert view is not None  # an axis of size 1 can be left out of any layout
        return view.permuted([self.order.index(axis) for axis in range(len(self.order))])


def make_image(
    planner: Planner,
    offer: Offer,
    post_ops: Sequence[PostOp],
    *,
    is_thin: bool,
    image_layout: MemoryDesc | None = None,
) -> PrimitiveDesc | None:
    """Return a primitive of images, with a specialised implementation if possible.

    Args:
        planner: the plan.
        offer: returns the primitive.
        post_ops: the post-ops.
        is_thin: whether each group computes so little that a product of matrices takes less time than mostly empty
            vectors of channels.
        image_layout: the layout of the image, if best read unchanged.
    """
    if image_layout is not None:
        primitive = _make_in_layout(planner, offer, post_ops, image_layout)
        if _quality(primitive) is _Quality.CONVOLUTION:
            return primitive
    primitive = offer(planner.any_layout, post_ops)
    if _quality(primitive) >= (_Quality.PRODUCT if is_thin else _Quality.CONVOLUTION):
        return primitive
    return max(primitive, offer(planner.channels_last, post_ops), key=_quality)


def named_images(planner: Planner, offer: NumberedOffer, post_ops: Sequence[PostOp]) -> Iterator[NamedPrimitive]:
    """Yield primitives of images with names: the layouts, and oneDNN's implementations in order."""
    layouts = {"any": planner.any_layout, "last": planner.channels_last, "plain": planner.row_major}
    for name, layout in layouts.items():
        yield from implementations(f"layout={name}", partial(offer, layout, post_ops))


def make_channels_last(planner: Planner, offer: Offer, post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
    """Return a primitive of channels-last images, if a specialised implementation exists."""
    primitive = offer(planner.channels_last, post_ops)
    return primitive if _quality(primitive) is _Quality.CONVOLUTION else None


def stays_in_blocks(planner: Planner, image: MemoryDesc, target: Sequence[int]) -> bool:
    """Return whether a convolution in one group reads an image faster in the present blocks than channels-last.

    Args:
        planner: the plan.
        image: the layout of the image, as seen by the primitive.
        target: the sizes of the result.
    """
    has_avx512 = planner.engine.isa & Isa.AVX512_CORE == Isa.AVX512_CORE
    if not has_avx512 or image.dtype != "float32" or not image.is_blocked() or image.is_padded():
        return False
    num_images, outputs, *_, width = target
    is_other_kernel = num_images > 1 and width > _WIDE
    return image.sizes[1] in _FEW_CHANNELS and not (is_other_kernel and outputs <= _BLOCK)


def _make_in_layout(
    planner: Planner, offer: Offer, post_ops: Sequence[PostOp], image: MemoryDesc
) -> PrimitiveDesc | None:
    """Return a primitive that reads an image in its present layout, and chooses the layout of the result."""

    def layout(sizes: Sequence[int], dtype: str) -> MemoryDesc:
        is_image = (tuple(sizes), dtype) == (image.sizes, image.dtype)
        return image if is_image else planner.any_layout(sizes, dtype)

    return offer(layout, post_ops)


class _Quality(IntEnum):
    """Kinds of implementations, the best last."""

    NONE = 0
    REFERENCE = 1
    PRODUCT = 2
    CONVOLUTION = 3


def _quality(primitive: PrimitiveDesc | None) -> _Quality:
    if primitive is None:
        return _Quality.NONE
    if primitive.is_reference:
        return _Quality.REFERENCE
    return _Quality.PRODUCT if "gemm" in primitive.implementation else _Quality.CONVOLUTION
