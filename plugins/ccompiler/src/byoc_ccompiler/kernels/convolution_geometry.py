"""The sizes of a convolution over one or two axes in any layout, and the input pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.ir import Constant
from byoc_core.ops import axes_of
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import offset_along
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["ConvolutionGeometry", "ImagePixels", "known_size"]

_FEW_CHANNELS = 16  # up to so many channels, a run is a line of the filter


@dataclass(frozen=True, slots=True)
class ConvolutionGeometry:
    """The sizes of an ``nn.conv2d``, or of an ``nn.conv1d`` as an ``nn.conv2d`` over images of height 1.

    Channels and filter are known; batch and image may be symbolic. ``strides`` and ``dilation`` are down and right,
    ``padding`` is top, left, bottom and right. ``weight_axes`` are the filter axes of output channels, input channels
    (of a group), rows (if any) and columns; ``weight_steps`` are the strides along these, in elements.
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
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    weight_axes: tuple[int, ...]
    weight_steps: tuple[int, ...]

    @classmethod
    def of_step(cls, step: Step) -> Self:
        """Return the sizes of a convolution over one or two axes with known channels and filter."""
        attrs, weight = step.binding.attrs, shape_of(step.operands[1])
        layout, kernel_layout = str(attrs["data_layout"]), str(attrs["kernel_layout"])
        batch, channels, height, width = _in_order(shape_of(step.operands[0]), layout, "NC", 1)
        _, out_channels, out_height, out_width = _in_order(shape_of(step.result), layout, "NC", 1)
        *_, down, right = _in_order(weight, kernel_layout, "OI", 1)
        steps = _in_order(compact_strides(weight), kernel_layout, "OI", 1)
        strides, dilation, padding = (ints_of(step.binding, name) for name in ("strides", "dilation", "padding"))
        if len(strides) == 1:
            strides, dilation, padding = (1, *strides), (1, *dilation), (0, padding[0], 0, padding[1])
        return cls(
            *(dtype_of(step.result), layout, batch, known_size(channels), height, width),
            *(known_size(out_channels), out_height, out_width, known_size(down), known_size(right)),
            *(int_of(step.binding, "groups"), strides, dilation, padding),
            *(axes_of(kernel_layout, "OI"), tuple(map(known_size, steps))),
        )

    @property
    def group_channels(self) -> int:
        """Input channels of a group."""
        return self.channels // self.groups

    @property
    def group_out_channels(self) -> int:
        """Output channels of a group."""
        return self.out_channels // self.groups

    @property
    def num_taps(self) -> int:
        """Elements of the filter for a pair of channels."""
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
        """Whether the filter has a single tap, always inside the image."""
        return self.num_taps == 1 and not self.is_padded

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is convolved by itself, with one or several filters."""
        return self.groups == self.channels and self.groups > 1

    @property
    def joins_lines(self) -> bool:
        """Whether a run of factors, contiguous with channels last, is a whole line of the filter."""
        has_line = self.filter_width > 1 and self.dilation[1] == 1
        return has_line and self.groups == 1 and self.channels <= _FEW_CHANNELS

    @property
    def num_runs(self) -> int:
        """Runs of factors in a window."""
        return self.filter_height if self.joins_lines else self.num_taps

    @property
    def run_size(self) -> int:
        """Factors of a run."""
        return self.num_taps // self.num_runs * self.group_channels

    def image_steps(self, strides: Sequence[Dim]) -> tuple[Dim, Dim, Dim, Dim]:
        """Return the distances between neighbouring images, channels, rows and pixels, from the strides of an image."""
        return _in_order(strides, self.layout, "NC", 0)

    def constant_filter(self, kernel: Kernel) -> NDArray | None:
        """Return the filter of a kernel's convolution as (output channels, input channels of a group, rows, columns).

        ``None`` if the filter is computed.
        """
        weight = kernel.group.steps[0].operands[1]
        if not isinstance(weight, Constant):
            return None
        sizes = (self.out_channels, self.group_channels, self.filter_height, self.filter_width)
        return kernel.scope.constants.array(weight, kernel.scope.where).transpose(self.weight_axes).reshape(sizes)

    def misses(self, row: c.Expression, column: c.Expression, height: int = 1, width: int = 1) -> c.Expression:
        """Return whether any of ``height`` x ``width`` pixels, from a given pixel on, lies outside the image."""
        down = c.Binary("||", row.compare("<", 0), row.compare(">", self.height - height))
        right = c.Binary("||", column.compare("<", 0), column.compare(">", self.width - width))
        return c.Binary("||", down, right)

    def nest(self, image: c.Buffer, weight: c.Buffer, result: c.Buffer) -> c.Nest:
        """Return the nest of a convolution, without a schedule, over row-major tensors without gaps.

        A window reads zeros beyond the image.
        """
        n, y, x, out, channel, i, j = c.variables("n y x o c i j")
        total, zero = c.Variable("total", c.CType(self.dtype)), c.Literal(0, c.CType(self.dtype))
        row = y * self.strides[0] + i * self.dilation[0] - self.padding[0]
        column = x * self.strides[1] + j * self.dilation[1] - self.padding[1]
        in_channel = out // self.group_out_channels * self.group_channels + channel
        steps = self._compact_steps(self.channels, self.height, self.width)
        pixel = c.Select(self.misses(row, column), zero, image[offset_along((n, in_channel, row, column), steps)])
        factor = weight[offset_along((out, channel, i, j), self.weight_steps)]
        offset = offset_along((n, out, y, x), self._compact_steps(self.out_channels, self.out_height, self.out_width))
        sizes = (self.batch, self.out_height, self.out_width, self.out_channels)
        reduced = (self.group_channels, self.filter_height, self.filter_width)
        return c.Nest(
            tuple(map(c.Axis, (n, y, x, out), sizes)),
            (c.Store(result, offset, total),),
            tuple(map(c.Axis, (channel, i, j), reduced)),
            accumulators=(c.Accumulator(total, zero, total + pixel * factor),),
        )

    def _compact_steps(self, channels: int, height: Dim, width: Dim) -> tuple[Dim, Dim, Dim, Dim]:
        """Return the strides of :meth:`image_steps` for images without gaps."""
        sizes = {"N": self.batch, "C": channels, "H": height, "W": width}
        return self.image_steps(compact_strides([sizes[axis] for axis in self.layout]))


_Offset = Callable[[c.Expression], c.Expression]


def _own(number: c.Expression) -> c.Expression:
    """Return the number of a row or a pixel: the distance from the first, without gaps."""
    return number


class ImagePixels:
    """The input images of the first step of a kernel; steps lead to the next image, row or pixel."""

    def __init__(self, kernel: Kernel) -> None:
        step = kernel.group.steps[0]
        self.geometry, image = ConvolutionGeometry.of_step(step), step.operands[0]
        self.image_step, _, self.row_step, self.pixel_step = self.geometry.image_steps(kernel.strides(image))
        self.buffer = kernel.source(image, "x")

    def offset(self, image: c.Expression, row: c.Expression, column: c.Expression) -> c.Expression:
        """Return the offset of the first channel of a pixel."""
        return image * self.image_step + row * self.row_step + column * self.pixel_step

    def pointers(
        self,
        at: c.PointerArray,
        image: c.Expression,
        row: c.Expression,
        column: c.Expression,
        width: int,
        outside: int = 0,
        offsets: tuple[_Offset, _Offset] = (_own, _own),
    ) -> c.Block:
        """Return the statements storing pointers to the pixels of a window, row by row.

        Outside the image, all channels have the value ``outside``. A row has ``width`` pixels; the first row and the
        first column are below 0 if the window begins outside. ``offsets`` return the distances of a row and of a pixel
        of a row from the first, by their numbers.
        """
        assert isinstance(at.size, int)
        k, i, j = c.variables("k i j")
        channel, channels = c.Variable("c"), self.geometry.channels
        access = c.MemoryAccess.WRITE if outside else c.MemoryAccess.READ
        beyond = c.Buffer("beyond" if outside else "zeros", at.dtype, access, channels)
        value = c.Store(beyond, channel, c.Literal(outside, c.CType(at.dtype)))
        fill = (c.For(channel, c.Size(0), c.Size(channels), (value,)),) if outside else ()
        address = c.Address(self.buffer, self.offset(image, i, j))
        pixel = c.Select(self.geometry.misses(i, j), c.Address(beyond, c.Size(0)), address)
        (down, right), (first, second) = offsets, (k // width, k % width)
        body = (c.Let(i, row + down(first)), c.Let(j, column + right(second)), c.Store(at, k, pixel))
        return (c.LocalArray(beyond, is_zeroed=not outside), *fill, c.For(k, c.Size(0), c.Size(at.size), body))


def known_size(dim: Dim) -> int:
    """Return a size known not to be symbolic."""
    assert isinstance(dim, int)
    return dim


def _in_order(sizes: Sequence[Dim], layout: str, channels: str, height: Dim) -> tuple[Dim, Dim, Dim, Dim]:
    """Return the sizes of the axes of a layout in the order of ``channels``, H, W; ``height`` in layouts without H."""
    first, second, *spatial = (sizes[axis] for axis in axes_of(layout, channels))
    row, column = spatial if len(spatial) == 2 else (height, spatial[0])
    return first, second, row, column
