"""The sizes of one convolution over two axes, whatever the layouts of image and filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from byoc_core.dims import Dim
from byoc_core.ops.windows import axes_of

from byoc_ccompiler.kernel import compact_strides
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["ConvolutionGeometry", "integers"]


def integers(value: object) -> tuple[int, ...]:
    """Gives an attribute of several integers as a tuple of them."""
    assert isinstance(value, tuple)
    return tuple(int(item) for item in value)


@dataclass(frozen=True, slots=True)
class ConvolutionGeometry:
    """The sizes of one ``nn.conv2d``. Channels and filter are known; batch and image may be symbolic.

    Attributes:
        dtype: of the image, the filter and the result.
        layout: ``NCHW`` or ``NHWC``, of image and result.
        strides: down, right.
        dilation: down, right.
        padding: top, left, bottom, right.
        weight_axes: which axes of the filter are output channels, input channels of a group, rows, columns.
        weight_steps: the filter's distances, in elements, along those.
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
    weight_axes: tuple[int, int, int, int]
    weight_steps: tuple[int, int, int, int]

    @classmethod
    def of_step(cls, step: Step) -> Self:
        """Gives the sizes of an ``nn.conv2d`` whose channels and filter are known."""
        attrs = step.binding.attrs
        layout = str(attrs["data_layout"])
        batch, channels, height, width = _in_order(shape_of(step.operands[0]), axes_of(layout, "NC"))
        _, out_channels, out_height, out_width = _in_order(shape_of(step.result), axes_of(layout, "NC"))
        weight = tuple(int(str(dim)) for dim in shape_of(step.operands[1]))
        axes = axes_of(str(attrs["kernel_layout"]), "OI")
        steps = tuple(int(str(dim)) for dim in compact_strides(weight))
        strides, dilation, padding = (integers(attrs[name]) for name in ("strides", "dilation", "padding"))
        return cls(
            dtype=dtype_of(step.result),
            layout=layout,
            batch=batch,
            channels=int(str(channels)),
            height=height,
            width=width,
            out_channels=int(str(out_channels)),
            out_height=out_height,
            out_width=out_width,
            filter_height=weight[axes[2]],
            filter_width=weight[axes[3]],
            groups=int(str(attrs["groups"])),
            strides=(strides[0], strides[1]),
            dilation=(dilation[0], dilation[1]),
            padding=(padding[0], padding[1], padding[2], padding[3]),
            weight_axes=(axes[0], axes[1], axes[2], axes[3]),
            weight_steps=(steps[axes[0]], steps[axes[1]], steps[axes[2]], steps[axes[3]]),
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
        """Whether some window reaches beyond the image."""
        return any(self.padding)

    @property
    def is_pointwise(self) -> bool:
        """Whether the filter has one tap, which always lies inside the image."""
        return self.num_taps == 1 and not self.is_padded

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is convolved by itself, with one or several filters."""
        return self.groups == self.channels and self.groups > 1


def _in_order(shape: Sequence[Dim], axes: Sequence[int]) -> tuple[Dim, ...]:
    return tuple(shape[axis] for axis in axes)
