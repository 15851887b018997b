"""Convolutions of all kinds: which of their writers computes them."""

from __future__ import annotations

from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.ir import Binding
from byoc_core.ops import RANKS, axes_of

from byoc_ccompiler.attributes import ints_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels import convolution_loops, depthwise, implicit_gemm, winograd
from byoc_ccompiler.kernels.bfloat16_products import suits_convolution, write_convolution
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry, known
from byoc_ccompiler.kernels.implicit_gemm_plan import MAX_POINTERS, count_runs, joins_lines
from byoc_ccompiler.rejections import FLOATS, operand_shape, operand_type
from byoc_ccompiler.size_checks import require_spatial
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY", "require_room"]


def _is_product(step: Step) -> bool:
    """Return whether a convolution is one of floats, channels last, over one or two axes."""
    is_flat = step.op in ("nn.conv1d", "nn.conv2d") and str(step.binding.attrs["data_layout"]).endswith("C")
    return is_flat and dtype_of(step.result) in FLOATS


def _write(kernel: Kernel) -> None:
    """Write the kernel of a convolution, and of what follows it, by the writer that suits it."""
    step = kernel.group.steps[0]
    has_plane = step.op == "nn.conv2d"
    if 0 in shape_of(step.result):
        kernel.finish_block(())
    elif not _is_product(step):
        convolution_loops.write(kernel)
    elif has_plane and depthwise.is_suited(step, kernel):
        depthwise.write(kernel)
    elif suits_convolution(step, kernel):
        write_convolution(kernel)
    elif has_plane and (plan := winograd.suited_plan(step, kernel)) is not None:
        winograd.write(kernel, plan)
    elif count_runs(ConvolutionGeometry.of_step(step)) <= MAX_POINTERS:
        implicit_gemm.write(kernel)
    else:
        convolution_loops.write(kernel)


def _reject(binding: Binding) -> Rejection | None:
    name, weight = binding.op.name, operand_type(binding, 1)
    channels = operand_shape(binding, 0)[str(binding.attrs["data_layout"]).index("C")]
    if weight.symbols or not isinstance(channels, int):
        return Rejection("dynamic-shape", f"{name} is compiled for a known number of channels and a known filter")
    if 0 in (weight.shape or ()):
        return Rejection("shape", f"{name} has a filter without elements")
    return None


def _require(scope: FunctionScope, step: Step) -> None:
    """Require that the padded image holds a window, and that a transposed convolution leaves something."""
    if step.op.endswith("_transpose"):
        sizes = [shape_of(step.result)[axis] for axis in axes_of(str(step.binding.attrs["data_layout"]), "NC")[2:]]
        require_spatial(scope, step.op, "the result", sizes, [1] * len(sizes))
    else:
        require_room(scope, step, step.op)


def require_room(scope: FunctionScope, step: Step, op: str) -> None:
    """Require that the padded image holds a window of a convolution, whose op is called by a name."""
    image, weight = shape_of(step.operands[0]), shape_of(step.operands[1])
    padding, dilation = ints_of(step.binding, "padding"), ints_of(step.binding, "dilation")
    axes = axes_of(str(step.binding.attrs["data_layout"]), "NC")[2:]
    taps = axes_of(str(step.binding.attrs["kernel_layout"]), "OI")[2:]
    sizes = [image[axis] + padding[index] + padding[index + len(axes)] for index, axis in enumerate(axes)]
    window = [(known(weight[tap]) - 1) * apart + 1 for tap, apart in zip(taps, dilation, strict=True)]
    require_spatial(scope, op, "the padded image", sizes, window)


def _reads(step: Step, index: int) -> Access:
    if not _is_product(step):
        return Access.ANY
    if index > 0:
        return Access.COMPACT
    # An image of few channels may be copied, and then in whatever order it lies.
    return Access.ANY if joins_lines(ConvolutionGeometry.of_step(step)) else Access.ROWS


_OPS = frozenset(f"nn.conv{rank}d{kind}" for rank in RANKS for kind in ("", "_transpose"))

FAMILY = KernelFamily(
    _OPS, _reject, _write, takes_epilogue=True, require=_require, reads=_reads, writes=lambda *_: Access.ROWS
)
"""Convolution over one, two or three axes, and its transpose."""
