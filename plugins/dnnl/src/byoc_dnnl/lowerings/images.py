"""How convolutions, transposed ones too, see images, and which of oneDNN's implementations they take.

Offered all layouts, oneDNN 3.2 takes row-major ones and its general product of matrices for groups of few channels, and
for depthwise convolutions along one axis; and channels-last ones for images of few channels that lie in blocks already.
It has better for all of these where it is asked for that (``docs/notes/convolutional-networks.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Isa

if TYPE_CHECKING:
    from byoc_core.runtime.graph.document import GraphTensor

    from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc
    from byoc_dnnl.planner import Planner
    from byoc_dnnl.post_ops import PostOp

__all__ = ["ImageAxes", "Layout", "Offer", "make_channels_last", "make_image", "stays_in_blocks"]

_BLOCK = 16
"""How many channels stand in a block of oneDNN's kernels for AVX-512."""

_FEW_CHANNELS = (_BLOCK, 2 * _BLOCK)
"""How many channels an image has that stays in blocks."""

_WIDE = 28
"""Above what width oneDNN has another kernel for several images, which is made for several blocks of outputs."""

Layout = Callable[[Sequence[int], str], "MemoryDesc"]
"""Gives a description of sizes and a dtype."""

Offer = Callable[[Layout, Sequence["PostOp"]], "PrimitiveDesc | None"]
"""Gives a primitive for images in a layout, with post-ops."""


@dataclass(frozen=True, slots=True)
class ImageAxes:
    """The axes of a call's images, and those of the primitive: images, channels, and what windows go along.

    Attributes:
        places: the call's axis for each of the primitive's, the height that it may add left out.
        is_lifted: whether the primitive sees the one axis that windows go along as the rows of images of height 1, as
            depthwise convolutions of oneDNN have to be.
    """

    places: tuple[int, ...]
    is_lifted: bool

    def lifted(self, of_each: Sequence[int], of_height: int) -> tuple[int, ...]:
        """Gives what is said of each axis, or of those that windows go along, with what is said of the height."""
        return (*of_each[:-1], of_height, *of_each[-1:]) if self.is_lifted else tuple(of_each)

    def sizes(self, image: GraphTensor) -> tuple[int, ...]:
        """Gives the sizes of an image of the call as the primitive sees it."""
        sizes = sizes_of(image)
        return self.lifted([sizes[axis] for axis in self.places], 1)

    def to_primitive(self, desc: MemoryDesc) -> MemoryDesc | None:
        """Gives a description of the call's axes with those of the primitive."""
        seen = desc.permuted(self.places)
        return seen.reshaped(self.lifted(seen.sizes, 1)) if self.is_lifted else seen

    def to_value(self, desc: MemoryDesc) -> MemoryDesc:
        """Gives a description of the primitive's axes with those of the call."""
        seen: MemoryDesc | None = desc
        if self.is_lifted:
            *others, _, last = desc.sizes
            seen = desc.reshaped((*others, last))
        assert seen is not None  # an axis of one element can be left out of any layout
        return seen.permuted([self.places.index(axis) for axis in range(len(self.places))])


def make_image(
    planner: Planner,
    offer: Offer,
    post_ops: Sequence[PostOp],
    *,
    is_thin: bool,
    lying: MemoryDesc | None = None,
) -> PrimitiveDesc | None:
    """Gives a primitive of images, with an implementation made for it where there is one.

    Args:
        planner: the plan.
        offer: gives the primitive.
        post_ops: the post-ops.
        is_thin: whether each group computes so little that a product of matrices takes less time than vectors of
            channels, most of which are empty.
        lying: how the image lies, if it is best read so.
    """
    if lying is not None:
        made = _make_as_it_lies(planner, offer, post_ops, lying)
        if _worth(made) is _Worth.CONVOLUTION:
            return made
    made = offer(planner.any, post_ops)
    if _worth(made) >= (_Worth.PRODUCT if is_thin else _Worth.CONVOLUTION):
        return made
    return max(made, offer(planner.channels_last, post_ops), key=_worth)


def make_channels_last(planner: Planner, offer: Offer, post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
    """Gives a primitive of images that lie channels-last, if there is an implementation made for it."""
    made = offer(planner.channels_last, post_ops)
    return made if _worth(made) is _Worth.CONVOLUTION else None


def stays_in_blocks(planner: Planner, image: MemoryDesc, target: Sequence[int]) -> bool:
    """Whether a convolution in one group reads an image faster in the blocks in which it lies than channels-last.

    Args:
        planner: the plan.
        image: how the image lies, as the primitive sees it.
        target: the sizes of the result.
    """
    has_avx512 = planner.engine.isa & Isa.AVX512_CORE == Isa.AVX512_CORE
    if not has_avx512 or image.dtype != "float32" or not image.is_blocked() or image.is_padded():
        return False
    num_images, outputs, *_, width = target
    is_other_kernel = num_images > 1 and width > _WIDE
    return image.sizes[1] in _FEW_CHANNELS and not (is_other_kernel and outputs <= _BLOCK)


def _make_as_it_lies(
    planner: Planner, offer: Offer, post_ops: Sequence[PostOp], image: MemoryDesc
) -> PrimitiveDesc | None:
    """Gives a primitive that reads an image in the layout that it has, and chooses that of its result."""

    def layout(sizes: Sequence[int], dtype: str) -> MemoryDesc:
        is_like_it = (tuple(sizes), dtype) == (image.sizes, image.dtype)
        return image if is_like_it else planner.any(sizes, dtype)

    return offer(layout, post_ops)


class _Worth(IntEnum):
    """What implementations are, the best last."""

    NONE = 0
    REFERENCE = 1
    PRODUCT = 2
    CONVOLUTION = 3


def _worth(made: PrimitiveDesc | None) -> _Worth:
    if made is None:
        return _Worth.NONE
    if made.is_reference:
        return _Worth.REFERENCE
    return _Worth.PRODUCT if "gemm" in made.implementation else _Worth.CONVOLUTION
