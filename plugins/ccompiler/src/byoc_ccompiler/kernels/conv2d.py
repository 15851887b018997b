"""Convolution over two axes: which of its writers computes it."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.info import Rejection
from byoc_core.ir import Binding

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels import convolution_planes, depthwise, implicit_gemm, winograd
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.rejections import operand_shape, operand_type, reject_non_floats
from byoc_ccompiler.size_checks import require_window
from byoc_ccompiler.steps import Step

__all__ = ["FAMILY", "choose_writer"]


def choose_writer(step: Step, kernel: Kernel) -> Callable[[Kernel], None]:
    """Gives what writes the kernel whose first step is this convolution."""
    if step.binding.attrs["data_layout"] == "NHWC":
        if depthwise.is_suited(step, kernel):
            return depthwise.write
        return winograd.write if winograd.is_suited(step, kernel) else implicit_gemm.write
    return convolution_planes.write


def _write(kernel: Kernel) -> None:
    choose_writer(kernel.group.steps[0], kernel)(kernel)


def _reject(binding: Binding) -> Rejection | None:
    channels = operand_shape(binding, 0)[str(binding.attrs["data_layout"]).index("C")]
    weight = operand_type(binding, 1)
    if weight.symbols or not isinstance(channels, int):
        return Rejection("dynamic-shape", "nn.conv2d is compiled for a known number of channels and a known filter")
    if 0 in (weight.shape or ()):
        return Rejection("shape", "nn.conv2d has a filter without elements")
    return reject_non_floats(binding)


def _require(scope: FunctionScope, step: Step) -> None:
    shape = ConvolutionGeometry.of_step(step)
    top, left, bottom, right = shape.padding
    padded = [shape.batch, shape.channels, shape.height + top + bottom, shape.width + left + right]
    window = zip((shape.filter_height, shape.filter_width), shape.dilation, strict=True)
    require_window(scope, step, padded, [0, 0, *((size - 1) * apart + 1 for size, apart in window)])


FAMILY = KernelFamily(frozenset({"nn.conv2d"}), _reject, _write, takes_epilogue=True, require=_require)
"""Convolution over two axes."""
