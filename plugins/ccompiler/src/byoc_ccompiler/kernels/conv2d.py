"""Convolutions of all kinds: which of their writers computes them."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.ir import Binding
from byoc_core.ops import RANKS, axes_of

from byoc_ccompiler.attributes import ints_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels import bfloat16_convolutions, convolution_loops, depthwise, implicit_gemm, winograd
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.implicit_gemm_plan import is_suited, joins_lines
from byoc_ccompiler.rejections import FLOATS, operand_shape, operand_type
from byoc_ccompiler.size_checks import require_spatial
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY", "choose_writer", "require_room"]


def _is_product(step: Step) -> bool:
    """Tells whether a convolution is one of floats, channels last, over one or two axes."""
    is_flat = step.op in ("nn.conv1d", "nn.conv2d") and str(step.binding.attrs["data_layout"]).endswith("C")
    return is_flat and dtype_of(step.result) in FLOATS


def choose_writer(step: Step, kernel: Kernel) -> Callable[[Kernel], None]:
    """Gives what writes the kernel whose first step is this convolution."""
    if not _is_product(step):
        return convolution_loops.write
    if step.op == "nn.conv2d" and depthwise.is_suited(step, kernel):
        return depthwise.write
    if bfloat16_convolutions.is_suited(step, kernel):
        return bfloat16_convolutions.write
    if step.op == "nn.conv2d" and winograd.is_suited(step, kernel):
        return winograd.write
    return implicit_gemm.write if is_suited(step) else convolution_loops.write


def _write(kernel: Kernel) -> None:
    step = kernel.group.steps[0]
    if 0 in shape_of(step.result):
        kernel.finish_block(())
    else:
        choose_writer(step, kernel)(kernel)


def _reject(binding: Binding) -> Rejection | None:
    name, weight = binding.op.name, operand_type(binding, 1)
    channels = operand_shape(binding, 0)[str(binding.attrs["data_layout"]).index("C")]
    if weight.symbols or not isinstance(channels, int):
        return Rejection("dynamic-shape", f"{name} is compiled for a known number of channels and a known filter")
    if 0 in (weight.shape or ()):
        return Rejection("shape", f"{name} has a filter without elements")
    return None


def _require(scope: FunctionScope, step: Step) -> None:
    """Has the padded image checked to hold a window, and a transposed convolution to leave something."""
    if not step.op.endswith("_transpose"):
        require_room(scope, step, step.op)
        return
    axes = axes_of(str(step.binding.attrs["data_layout"]), "NC")[2:]
    require_spatial(scope, step.op, "the result", [shape_of(step.result)[axis] for axis in axes], [1] * len(axes))


def require_room(scope: FunctionScope, step: Step, op: str) -> None:
    """Has the padded image checked to hold a window of a convolution, whose op is called by a name."""
    axes = axes_of(str(step.binding.attrs["data_layout"]), "NC")[2:]
    rank = len(axes)
    image, weight = shape_of(step.operands[0]), shape_of(step.operands[1])
    padding, dilation = ints_of(step.binding, "padding"), ints_of(step.binding, "dilation")
    taps = axes_of(str(step.binding.attrs["kernel_layout"]), "OI")[2:]
    sizes = [image[axis] + padding[index] + padding[index + rank] for index, axis in enumerate(axes)]
    window = [(int(str(weight[tap])) - 1) * apart + 1 for tap, apart in zip(taps, dilation, strict=True)]
    require_spatial(scope, op, "the padded image", sizes, window)


def _reads(step: Step, index: int) -> Access:
    if not _is_product(step):
        return Access.ANY
    if index > 0:
        return Access.COMPACT
    # An image of few channels may be copied, and then in whatever order it lies.
    return Access.ANY if joins_lines(ConvolutionGeometry.of_step(step)) else Access.ROWS


def _writes(step: Step, index: int) -> Access:
    return Access.ROWS


FAMILY = KernelFamily(
    frozenset(f"nn.conv{rank}d{kind}" for rank in RANKS for kind in ("", "_transpose")),
    _reject,
    _write,
    takes_epilogue=True,
    require=_require,
    reads=_reads,
    writes=_writes,
)
"""Convolution over one, two or three axes, and its transpose."""
