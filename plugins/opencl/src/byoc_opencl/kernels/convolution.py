"""Kernels of convolutions over one to three axes: a thread computes an element of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.ir import Binding
from byoc_core.ops import RANKS, axis_letters

from byoc_opencl.kernels.attributes import int_of, ints_of
from byoc_opencl.kernels.family import KernelFamily, reject_other_than_floats, reject_sizes, shape_of
from byoc_opencl.kernels.step import Step, all_of, literal

__all__ = ["FAMILY"]


@dataclass(frozen=True, slots=True)
class _Taps:
    """The tap of a filter read for an element of the result.

    Attributes:
        pixel: the position in the image, by letter of the layout.
        weight: the position in the filters, by letter of the layout.
        inside: the conditions for a pixel inside of the image.
    """

    pixel: Mapping[str, c.Expression]
    weight: Mapping[str, c.Expression]
    inside: Sequence[c.Expression]


class _Convolution:
    """A convolution: layouts, attributes, and the indices of result, channel and tap."""

    def __init__(self, step: Step) -> None:
        binding = step.binding
        self.step = step
        self.data, self.kernel = str(binding.attrs["data_layout"]), str(binding.attrs["kernel_layout"])
        self.letters = axis_letters(len(self.data) - 2)
        self.groups = int_of(binding, "groups")
        self.is_transposed = binding.op.name.endswith("_transpose")
        self.index = {letter: c.Variable(letter.lower()) for letter in self.data}
        self.taps = {letter: c.Variable(f"tap_{letter.lower()}") for letter in self.letters}
        self.channel = c.Variable("channel")
        dims = step.inputs[1].dims
        self.filters = {letter: int(str(dims[self.kernel.index(letter)])) for letter in self.kernel}

    @property
    def group_channels(self) -> int:
        """The channels of the image read for an element of the result."""
        return self.filters["I"] // self.groups if self.is_transposed else self.filters["I"]

    def along(self, letter: str) -> tuple[int, int, int, int]:
        """Return stride, dilation, and the padding before and after a spatial axis."""
        axis, binding = self.letters.index(letter), self.step.binding
        padding = ints_of(binding, "padding")
        before, after = padding[axis], padding[axis + len(self.letters)]
        return ints_of(binding, "strides")[axis], ints_of(binding, "dilation")[axis], before, after

    def size(self, letter: str) -> Dim:
        """Return the size of the image along an axis."""
        return self.step.inputs[0].shape[self.data.index(letter)]

    def windows(self) -> _Taps:
        """Return the taps of a convolution: a tap outside of the image counts as zero."""
        pixel: dict[str, c.Expression] = {"N": self.index["N"], "C": self.channel}
        if self.groups > 1:
            group = self.index["C"] // self.step.sizes(self.filters["O"] // self.groups)
            pixel["C"] = group * self.step.sizes(self.group_channels) + self.channel
        inside: list[c.Expression] = []
        for letter in self.letters:
            stride, dilation, before, after = self.along(letter)
            pixel[letter] = self.index[letter] * stride + self.taps[letter] * dilation - self.step.sizes(before)
            if before:
                inside.append(pixel[letter].compare(">=", 0))
            if after:
                inside.append(pixel[letter].compare("<", self.size(letter)))
        return _Taps(pixel, {"O": self.index["C"], "I": self.channel, **self.taps}, inside)

    def gathers(self) -> _Taps:
        """Return the taps of a transposed convolution: each tap adds the pixel moved to this element, if any."""
        pixel: dict[str, c.Expression] = {"N": self.index["N"], "C": self.channel}
        filter_channel: c.Expression = self.index["C"]
        if self.groups > 1:
            num_outputs = self.step.sizes(self.filters["O"])
            pixel["C"] = self.index["C"] // num_outputs * self.step.sizes(self.group_channels) + self.channel
            filter_channel = self.index["C"] % num_outputs
        inside: list[c.Expression] = []
        for letter in self.letters:
            stride, dilation, before, _ = self.along(letter)
            reach = self.index[letter] + self.step.sizes(before) - self.taps[letter] * dilation
            pixel[letter] = reach // stride
            inside.append(reach.compare(">=", 0))
            if stride > 1:
                inside.append((reach % stride).compare("==", 0))
            inside.append(pixel[letter].compare("<", self.size(letter)))
        return _Taps(pixel, {"O": filter_channel, "I": pixel["C"], **self.taps}, inside)


def _write(step: Step) -> c.Nest:
    convolution, (x, weight), (out,) = _Convolution(step), step.inputs, step.outputs
    taps = convolution.gathers() if convolution.is_transposed else convolution.windows()
    pixel: c.Expression = x[[taps.pixel[letter] for letter in convolution.data]]
    if taps.inside:
        pixel = c.Select(all_of(taps.inside), pixel, literal(0, out.type))
    total = c.Variable("total", out.type)
    product = pixel * weight[[taps.weight[letter] for letter in convolution.kernel]]
    reduced = [c.Axis(convolution.channel, step.sizes(convolution.group_channels))]
    reduced += [c.Axis(tap, step.sizes(convolution.filters[letter])) for letter, tap in convolution.taps.items()]
    axes = [c.Axis(convolution.index[letter], out.shape[axis]) for axis, letter in enumerate(convolution.data)]
    return c.Nest(
        tuple(axes),
        (out.store([axis.index for axis in axes], total),),
        tuple(reduced),
        accumulators=(c.Accumulator(total, literal(0, out.type), total + product),),
    )


def _reject(binding: Binding) -> Rejection | None:
    if (rejection := reject_other_than_floats(binding)) is not None:
        return rejection
    image, filters = map(shape_of, binding.operands)
    if not all(isinstance(size, int) for size in filters):
        return Rejection("dynamic-shape", f"{binding.op.name} has no kernel for filters of symbolic size")
    data, kernel = str(binding.attrs["data_layout"]), str(binding.attrs["kernel_layout"])
    channels: Dim = filters[kernel.index("I")]
    if not binding.op.name.endswith("_transpose"):
        channels = channels * int_of(binding, "groups")
    return None if image[data.index("C")] == channels else reject_sizes(binding)


FAMILY = KernelFamily(
    frozenset(f"nn.conv{rank}d{suffix}" for rank in RANKS for suffix in ("", "_transpose")),
    _write,
    _reject,
    is_nest=True,
)
"""Convolutions and transposed convolutions with groups, strides, dilation and padding, in all layouts."""
