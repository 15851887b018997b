"""The sizes that compiled steps rely on and that only a call shows: what the generated wrapper checks.

Loops read each operand as if its sizes were those of the space they run over, or 1. Equal sizes that no symbol hides
need no check; where an op needs equal sizes and they are not known to be, :mod:`byoc_ccompiler.support` refuses it.
"""

from __future__ import annotations

from byoc_core.authoring.csource import FunctionScope

from byoc_ccompiler.grouping import POINTWISE, Step, shape_of
from byoc_ccompiler.pooling import POOLS

__all__ = ["require_sizes"]

_WEIGHT_WINDOWS = {"OIHW": (2, 3), "IOHW": (2, 3), "HWIO": (0, 1)}
_PER_CHANNEL = ("nn.bias_add", "nn.batch_norm")


def require_sizes(scope: FunctionScope, step: Step) -> None:
    """Adds the checks of the sizes of one step to its function."""
    names = step.binding.op.operand_names(len(step.operands))
    space = shape_of(step.binding.results[0])
    if step.op in POINTWISE and step.op not in _PER_CHANNEL:
        for name, operand in zip(names, step.operands, strict=True):
            scope.require_broadcast(step.op, name, shape_of(operand), space)
    elif step.op == "matmul":
        for name, operand in zip(names, step.operands, strict=True):
            scope.require_broadcast(step.op, name, shape_of(operand)[:-2], space[:-2])
    elif step.op == "nn.conv2d" or step.op in POOLS:
        _require_window(scope, step)
    for result in step.binding.results:
        shape = shape_of(result)
        scope.require_at_least(step.op, "the result", shape, [0] * len(shape))


def _require_window(scope: FunctionScope, step: Step) -> None:
    """Has the padded image checked to be no smaller than the window."""
    attrs = step.binding.attrs
    if step.op == "nn.conv2d":
        weight = shape_of(step.operands[1])
        window = _integers(tuple(weight[axis] for axis in _WEIGHT_WINDOWS[str(attrs["kernel_layout"])]))
    else:
        window = _integers(attrs["pool_size"])
    dilation, padding = _integers(attrs["dilation"]), _integers(attrs["padding"])
    image = shape_of(step.operands[0])
    padded = [*image[:2], *(image[2 + axis] + padding[axis] + padding[axis + 2] for axis in range(2))]
    reach = [0, 0, *((size - 1) * apart + 1 for size, apart in zip(window, dilation, strict=True))]
    scope.require_at_least(step.op, "the padded image", padded, reach)


def _integers(value: object) -> tuple[int, ...]:
    assert isinstance(value, tuple)
    return tuple(int(str(item)) for item in value)
