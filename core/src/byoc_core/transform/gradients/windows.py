"""Sums over windows of images, and their adjoints, for the rules of convolution and pooling.

Images are ``(N, C, spatial axes)``, filters ``(O, I, window)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.dims import Dim
from byoc_core.opset.permutation import inverse
from byoc_core.opset.windows import axes_of
from byoc_core.transform.gradients.terms import Term

__all__ = ["WindowGrid", "channels_first", "in_layout"]


def channels_first(image: Term, layout: str, channels: str = "NC") -> Term:
    """Return an image or a filter of a layout with the axes ``channels`` first, then the spatial axes."""
    return image.permute(axes_of(layout, channels))


def in_layout(image: Term, layout: str, channels: str = "NC") -> Term:
    """Return an image or a filter from :func:`channels_first` in its layout again."""
    return image.permute(inverse(axes_of(layout, channels)))


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """The windows over the spatial axes of an image.

    Attributes:
        window: the sizes of a window.
        strides: the step between windows along each axis.
        dilation: the step between the taps of a window along each axis.
        begin: the padding before each axis.
        sizes: the sizes of the image.
        counts: the numbers of windows along each axis.
    """

    window: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    begin: tuple[int, ...]
    sizes: tuple[Dim, ...]
    counts: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.sizes)

    def _reach(self, axis: int) -> Dim:
        """Return the number of elements from the first tap of the first window to the last tap of the last window."""
        return (self.counts[axis] - 1) * self.strides[axis] + (self.window[axis] - 1) * self.dilation[axis] + 1

    def add_windows(self, factors: Term, filters: Term, groups: int = 1) -> Term:
        """Return images with a scaled filter added at each window: the adjoint of a convolution by its image.

        Elements added to the padding are dropped.

        Args:
            factors: a factor for each window ``(N, O, counts)``.
            filters: ``(O, C // groups, window)``.
            groups: the number of groups of channels.

        Returns:
            ``(N, C, sizes)``.
        """
        added, cut = [0] * self.rank, [0] * self.rank
        for axis in range(self.rank):
            missing = self.begin[axis] + self.sizes[axis] - self._reach(axis)
            # A missing number unknown here is below the stride.
            added[axis] = max(missing, 0) if isinstance(missing, int) else self.strides[axis] - 1
            cut[axis] = max(-missing, 0) if isinstance(missing, int) else 0
        images = factors.apply(
            f"nn.conv{self.rank}d_transpose",
            filters,
            strides=self.strides,
            padding=(*self.begin, *cut),
            dilation=self.dilation,
            groups=groups,
            output_padding=added,
        )
        return images.take_first({axis + 2: size for axis, size in enumerate(self.sizes)})

    def filter_cotangent(self, images: Term, cotangent: Term, end: Sequence[int], groups: int = 1) -> Term:
        """Return the cotangent of the filters of a convolution.

        The convolution has the channels of the images as batch, the batch as channels, and the cotangents as filters,
        with strides and dilation exchanged.

        Args:
            images: ``(N, C, sizes)``.
            cotangent: the cotangent of the convolution, ``(N, O, counts)``.
            end: the padding after each axis.
            groups: the number of groups of channels.

        Returns:
            ``(O, C // groups, window)``.
        """
        batch, channels = images.shape[:2]
        spatial = range(3, 3 + self.rank)
        grouped = images.reshape((batch, groups, channels // groups, *self.sizes)).permute((2, 1, 0, *spatial))
        stacked = grouped.reshape((channels // groups, batch * groups, *self.sizes))
        filters = stacked.apply(
            f"nn.conv{self.rank}d",
            cotangent.move_axis(1, 0),
            strides=self.dilation,
            padding=(*self.begin, *end),
            dilation=self.strides,
            groups=groups,
        )
        return filters.take_first({axis + 2: size for axis, size in enumerate(self.window)}).move_axis(1, 0)

    def num_inside(self, like: Term, end: Sequence[int]) -> Term:
        """Return the number of elements of each window inside of the image, at least 1: ``(1, 1, counts)``.

        Args:
            like: a term of the dtype of the result.
            end: the padding after each axis.
        """
        extra = [0] * self.rank
        for axis in range(self.rank):
            missing = self._reach(axis) - (self.begin[axis] + self.sizes[axis] + end[axis])
            extra[axis] = max(missing, 0) if isinstance(missing, int) else self.strides[axis] - 1
        ones = (like.emitter.full(1, (1, 1, *sizes), like.dtype) for sizes in (self.sizes, self.window))
        image, filters = ones
        counts = image.apply(
            f"nn.conv{self.rank}d",
            filters,
            strides=self.strides,
            padding=(*self.begin, *(width + more for width, more in zip(end, extra, strict=True))),
            dilation=self.dilation,
        )
        return counts.take_first({axis + 2: count for axis, count in enumerate(self.counts)}).apply("maximum", 1)
