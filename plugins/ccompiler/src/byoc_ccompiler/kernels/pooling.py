"""Pooling over one, two or three axes: which ops are taken, and which writer computes them."""

from __future__ import annotations

from byoc_core.authoring.csource import C_TYPES, FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.dtypes import is_integer
from byoc_core.ir import Binding

from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels import pooling_elements, pooling_planes, pooling_rows
from byoc_ccompiler.kernels.pooling_windows import Pooling
from byoc_ccompiler.rejections import FLOATS, operand_type, reject_non_floats
from byoc_ccompiler.size_checks import require_spatial
from byoc_ccompiler.steps import Step

__all__ = ["FAMILY"]

_OPS = frozenset(
    f"nn.{kind}_pool{rank}d" for kind in ("max", "avg", "lp", "adaptive_max", "adaptive_avg") for rank in (1, 2, 3)
)
_PLANES = frozenset({"nn.max_pool2d", "nn.avg_pool2d"})


def _has_channels_last(step: Step) -> bool:
    return str(step.binding.attrs["layout"]).endswith("C")


def _write(kernel: Kernel) -> None:
    (step,) = kernel.group.steps
    if _has_channels_last(step):
        pooling_rows.write(kernel)
    elif step.op in _PLANES:
        pooling_planes.write(kernel)
    else:
        pooling_elements.write(kernel)


def _reject(binding: Binding) -> Rejection | None:
    if "max" not in binding.op.name:
        return reject_non_floats(binding)
    dtype = operand_type(binding, 0).dtype
    if dtype in FLOATS or (dtype in C_TYPES and is_integer(dtype)):
        return None
    return Rejection("dtype", f"{binding.op.name} is compiled for {', '.join(FLOATS)} and integers, not for {dtype}")


def _require(scope: FunctionScope, step: Step) -> None:
    axes = Pooling.of_step(step).axes
    padded = [axis.size + axis.begin + axis.end for axis in axes]
    # Adaptive pooling shares out what is there.
    window = [(axis.window - 1) * axis.dilation + 1 if axis.window else 1 for axis in axes]
    require_spatial(scope, step.op, "the padded image", padded, window)


def _access(step: Step, index: int) -> Access:
    return Access.ROWS if _has_channels_last(step) else Access.COMPACT


FAMILY = KernelFamily(_OPS, _reject, _write, require=_require, reads=_access, writes=_access)
"""Pooling."""
