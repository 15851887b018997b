"""Matrix products, ``nn.dense`` and ``matmul``: which way each is computed."""

from __future__ import annotations

from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.ir import Binding

from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels import bfloat16_products
from byoc_ccompiler.kernels.dot_products import prefers_dots, write_dot_product
from byoc_ccompiler.kernels.integer_products import write_integer_product
from byoc_ccompiler.kernels.panel_products import write_panel_product
from byoc_ccompiler.kernels.product_geometry import Product
from byoc_ccompiler.rejections import FLOATS, operand_shape, reject_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]


def _write(kernel: Kernel) -> None:
    geometry = Product.of_kernel(kernel)
    if 0 in shape_of(kernel.group.steps[0].result):
        kernel.finish_block(())
    elif geometry.dtype not in FLOATS:
        write_integer_product(kernel, geometry)
    elif prefers_dots(geometry):
        write_dot_product(kernel, geometry)
    elif bfloat16_products.is_suited(kernel, geometry):
        bfloat16_products.write(kernel, geometry)
    else:
        write_panel_product(kernel, geometry)


def _reads(step: Step, index: int) -> Access:
    """Rearranging takes a matrix on the right as it is; all else is read along its rows."""
    is_matrix = step.op in ("nn.dense", "matmul") and index == 1 and len(shape_of(step.operands[1])) > 1
    return Access.ANY if is_matrix else Access.ROWS


def _writes(step: Step, index: int) -> Access:
    return Access.ROWS


def _reject(binding: Binding) -> Rejection | None:
    left, right = (operand_shape(binding, k) for k in (0, 1))
    along = 1 if binding.op.name == "nn.dense" else max(0, len(right) - 2)
    return reject_sizes(binding) if left[-1] != right[along] else None


def _require(scope: FunctionScope, step: Step) -> None:
    """Have the axes in front of the matrices checked, which broadcast."""
    shapes = [shape_of(operand) for operand in step.operands]
    space = shape_of(step.result)
    batch = space[: len(space) - sum(len(shape) > 1 for shape in shapes)]
    for name, shape in zip(step.binding.op.operand_names(2), shapes, strict=True):
        scope.require_broadcast(step.op, name, shape[:-2], batch)


FAMILY = KernelFamily(
    *(frozenset({"nn.dense", "matmul"}), _reject, _write),
    takes_epilogue=True,
    require=_require,
    reads=_reads,
    writes=_writes,
)
"""Matrix products."""
