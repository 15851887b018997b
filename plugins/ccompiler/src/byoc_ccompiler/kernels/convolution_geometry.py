"""The sizes of one convolution over one or two axes, whatever the layouts of image and filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from byoc_core.dims import Dim
from byoc_core.ops import axes_of
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.kernel import compact_strides
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["ConvolutionGeometry"]


@dataclass(frozen=True, slots=True)
class ConvolutionGeometry:
    """The sizes of one ``nn.conv2d``, or of an ``nn.conv1d`` as one over images of height 1.

    Channels and filter are known; batch and image may be symbolic.

    Attributes:
        dtype: of the image, the filter and the result.
        layout: ``NCHW`` or ``NHWC`` (``NCW`` or ``NWC``), of image and result.
        strides: down, right.
        dilation: down, right.
        padding: top, left, bottom, right.
        weight_axes: which axes of the filter are output channels, input channels (of a group), rows (if any), columns.
        weight_steps: the filter's distances, in elements, from one output channel, input channel (of a group), row and
            column to the next.
    """

    dtype: str
    layout: str
    batch: Dim
    channels: int
    height: Dim
    width: Dim
    out_channels: int
    out_height: Dim
    out_width: Dim
    filter_height: int
    filter_width: int
    groups: int
    strides: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    weight_axes: tuple[int, ...]
    weight_steps: tuple[int, int, int, int]

    @classmethod
    def of_step(cls, step: Step) -> Self:
        """Gives the sizes of a convolution over one or two axes whose channels and filter are known."""
        attrs = step.binding.attrs
        layout, kernel_layout = str(attrs["data_layout"]), str(attrs["kernel_layout"])
        batch, channels, height, width = _in_order(shape_of(step.operands[0]), layout, "NC", 1)
        _, out_channels, out_height, out_width = _in_order(shape_of(step.result), layout, "NC", 1)
        weight = shape_of(step.operands[1])
        sizes, steps = (_in_order(dims, kernel_layout, "OI", 1) for dims in (weight, compact_strides(weight)))
        strides, dilation, padding = (ints_of(step.binding, name) for name in ("strides", "dilation", "padding"))
        if len(strides) == 1:
            strides, dilation, padding = (1, *strides), (1, *dilation), (0, padding[0], 0, padding[1])
        return cls(
            dtype=dtype_of(step.result),
            layout=layout,
            batch=batch,
            channels=_known(channels),
            height=height,
            width=width,
            out_channels=_known(out_channels),
            out_height=out_height,
            out_width=out_width,
            filter_height=_known(sizes[2]),
            filter_width=_known(sizes[3]),
            groups=int_of(step.binding, "groups"),
            strides=(strides[0], strides[1]),
            dilation=(dilation[0], dilation[1]),
            padding=(padding[0], padding[1], padding[2], padding[3]),
            weight_axes=axes_of(kernel_layout, "OI"),
            weight_steps=(_known(steps[0]), _known(steps[1]), _known(steps[2]), _known(steps[3])),
        )

    @property
    def group_channels(self) -> int:
        """Input channels of one group."""
        return self.channels // self.groups

    @property
    def group_out_channels(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def num_taps(self) -> int:
        """Elements of the filter for one pair of channels."""
        return self.filter_height * self.filter_width

    @property
    def num_pixels(self) -> Dim:
        """Pixels of all results of the batch."""
        return self.batch * self.out_height * self.out_width

    @property
    def is_padded(self) -> bool:
        """Whether some window may reach beyond the image."""
        return any(self.padding)

    @property
    def is_pointwise(self) -> bool:
        """Whether the filter has one tap, which always lies inside the image."""
        return self.num_taps == 1 and not self.is_padded

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is convolved by itself, with one or several filters."""
        return self.groups == self.channels and self.groups > 1

    def image_steps(self, strides: Sequence[Dim]) -> tuple[Dim, Dim, Dim, Dim]:
        """Gives an image's distances from one image, channel, row and pixel to the next, from its strides."""
        batch, channel, row, pixel = _in_order(strides, self.layout, "NC", 0)
        return batch, channel, row, pixel

    def ordered_filter(self, weight: NDArray) -> NDArray:
        """Gives a filter as (output channels, input channels of a group, rows, columns)."""
        return weight.transpose(self.weight_axes).reshape(
            self.out_channels, self.group_channels, self.filter_height, self.filter_width
        )


def _in_order(sizes: Sequence[Dim], layout: str, channels: str, height: Dim) -> tuple[Dim, Dim, Dim, Dim]:
    """Gives what belongs to the axes of a layout in the order of ``channels``, H, W; ``height`` where there is no H."""
    first, second, *spatial = (sizes[axis] for axis in axes_of(layout, channels))
    row, column = spatial if len(spatial) == 2 else (height, spatial[0])
    return first, second, row, column


def _known(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim
