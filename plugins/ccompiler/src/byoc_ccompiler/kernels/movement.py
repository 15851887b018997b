"""Ops that only move elements: reshape, permute_dims, concat, split."""

from __future__ import annotations

from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, ParallelLoop
from byoc_core.authoring.csource_types import c_dim
from byoc_core.backend.info import Rejection
from byoc_core.dims import product
from byoc_core.ir import Binding, TensorType

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.rejections import operand_shape, reject_sizes
from byoc_ccompiler.steps import shape_of

__all__ = ["FAMILY"]

_MOVE_PS = 500
"""Estimated picoseconds to move one element to another order."""

_LOCALS = ("row", "to", "from")


def _write(kernel: Kernel) -> None:
    """Writes the kernel of an op that moves elements."""
    kernel.names.reserve(_LOCALS)
    _WRITERS[kernel.group.steps[0].op](kernel)


def _reshape(kernel: Kernel) -> None:
    (step,) = kernel.group.steps
    source = kernel.input(step.operands[0])
    count = c_dim(product(shape_of(step.result)))
    kernel.finish([f"  memcpy({kernel.output(step.result)}, {source}, (size_t){count} * sizeof(*{source}));"])


def _permute(kernel: Kernel) -> None:
    (step,) = kernel.group.steps
    shape = shape_of(step.operands[0])
    axes = step.binding.attrs["axes"]
    order = [int(str(axis)) % len(shape) for axis in axes] if isinstance(axes, tuple) else [*range(len(shape))][::-1]
    indices = [f"i{axis}" for axis in range(len(order))]
    kernel.names.reserve(indices)
    source, out = kernel.input(step.operands[0]), kernel.output(step.result)
    result = shape_of(step.result)
    lines = []
    part = next((axis for axis, size in enumerate(result) if size != 1), None)
    for axis, size in enumerate(result):
        first, end = (FIRST_ITEM, END_ITEM) if axis == part else ("0", c_dim(size))
        lines.append(f"{'  ' * (axis + 1)}for (int64_t i{axis} = {first}; i{axis} < {end}; ++i{axis}) {{")
    to = " + ".join(f"{i} * {c_dim(product(result[axis + 1 :]))}" for axis, i in enumerate(indices)) or "0"
    come = " + ".join(f"i{axis} * {c_dim(product(shape[o + 1 :]))}" for axis, o in enumerate(order)) or "0"
    lines.append(f"{'  ' * (len(order) + 1)}{out}[{to}] = {source}[{come}];")
    lines += ["  " * depth + "}" for depth in range(len(order), 0, -1)]
    if part is None:
        kernel.finish(lines)
        return
    kernel.finish([ParallelLoop(tuple(lines), result[part], product(result[part + 1 :]) * _MOVE_PS)])


def _concat(kernel: Kernel) -> None:
    (step,) = kernel.group.steps
    result = shape_of(step.result)
    axis = int(str(step.binding.attrs["axis"])) % len(result)
    out = kernel.output(step.result)
    lines = [f"  {kernel.ctype(step.result)} *to = {out};"]
    lines.append(f"  for (int64_t row = 0; row < {c_dim(product(result[:axis]))}; ++row) {{")
    for operand in step.operands:
        count = c_dim(product(shape_of(operand)[axis:]))
        lines.append(f"    memcpy(to, {kernel.input(operand)} + row * {count}, (size_t){count} * sizeof(*to));")
        lines.append(f"    to += {count};")
    kernel.finish([*lines, "  }"])


def _split(kernel: Kernel) -> None:
    (step,) = kernel.group.steps
    source = kernel.input(step.operands[0])
    shape = shape_of(step.operands[0])
    axis = int(str(step.binding.attrs["axis"])) % len(shape)
    lines = [f"  const {kernel.ctype(step.operands[0])} *from = {source};"]
    lines.append(f"  for (int64_t row = 0; row < {c_dim(product(shape[:axis]))}; ++row) {{")
    for part in step.binding.results:
        count = c_dim(product(shape_of(part)[axis:]))
        if part in kernel.stored:
            lines.append(f"    memcpy({kernel.output(part)} + row * {count}, from, (size_t){count} * sizeof(*from));")
        lines.append(f"    from += {count};")
    kernel.finish([*lines, "  }"])


def _reject(binding: Binding) -> Rejection | None:
    """Refuses sizes that only running shows to agree: the C code copies without looking."""
    shapes = [operand_shape(binding, index) for index in range(len(binding.operands))]
    agrees = True
    if binding.op.name == "reshape":
        (result,) = binding.results
        agrees = isinstance(result.type, TensorType) and result.type.num_elements == product(shapes[0])
    elif binding.op.name in ("split", "concat"):
        axis = int(str(binding.attrs["axis"])) % len(shapes[0])
        parts = [r.type.shape or () for r in binding.results if isinstance(r.type, TensorType)]
        if binding.op.name == "split":
            agrees = sum((part[axis] for part in parts), start=0) == shapes[0][axis]
        else:
            agrees = len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) == 1
    return None if agrees else reject_sizes(binding)


_WRITERS = {"reshape": _reshape, "permute_dims": _permute, "concat": _concat, "split": _split}

FAMILY = KernelFamily(frozenset(_WRITERS), _reject, _write)
"""Ops that only move elements."""
