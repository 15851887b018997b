"""Checks of sizes assumed by loops and known only in a call: part of the generated wrapper.

Loops read each operand as if the sizes were the sizes of the iteration space, or 1. Equal sizes without symbols need
no check; if an op needs equal sizes and the sizes are not known to be equal, the family rejects the op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim
from byoc_core.ir import Binding
from byoc_core.ops import axes_of, axis_letters

from byoc_ccompiler.attributes import ints_of
from byoc_ccompiler.steps import Step, shape_of

__all__ = [
    "REPLACED_WINDOWS",
    "require_broadcast",
    "require_equal_sizes",
    "require_replaced_windows",
    "require_results",
    "require_spatial",
    "require_window",
    "window_sizes",
]

REPLACED_WINDOWS = "replaced_windows"
"""The attribute of a function with the convolutions replaced by ops without a check of the window: for each the name of
the op and the sizes of :func:`window_sizes`."""


def require_broadcast(scope: FunctionScope, step: Step, *, skip: int = 0, of_result: int = 0) -> None:
    """Require the sizes of the operands to broadcast to the result.

    Args:
        scope: the function.
        step: the step.
        skip: number of last axes ignored in each operand.
        of_result: number of last axes ignored in the result.
    """
    names = step.binding.op.operand_names(len(step.operands))
    space = shape_of(step.binding.results[0])
    for name, operand in zip(names, step.operands, strict=True):
        dims = shape_of(operand)
        scope.require_broadcast(step.op, name, dims[: max(0, len(dims) - skip)], space[: len(space) - of_result])


def require_equal_sizes(
    scope: FunctionScope, step: Step, operand: int, dims: Sequence[Dim], expected: Sequence[Dim]
) -> None:
    """Require sizes of an operand, given by number, to equal the expected sizes."""
    names = step.binding.op.operand_names(len(step.operands))
    scope.require_equal(step.op, names[operand], dims, expected)


def require_spatial(scope: FunctionScope, op: str, subject: str, sizes: Sequence[Dim], least: Sequence[Dim]) -> None:
    """Require minimum spatial sizes; axes are named as in images with channels first.

    The names are thus the same for any layout; a rewrite of the region may have changed the layout.

    Args:
        scope: the function.
        op: the op's name.
        subject: the image with the sizes, for the message.
        sizes: the size of each spatial axis.
        least: the minimum of each size.
    """
    axes = ", ".join("NC" + axis_letters(len(sizes)))
    scope.require_at_least(op, f"{subject} ({axes})", [1, 1, *sizes], [0, 0, *least])


def window_sizes(
    binding: Binding, image: Sequence[Dim], weight: Sequence[Dim]
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Return the sizes of the padded image of a convolution, and of the window, by spatial axis.

    Args:
        binding: the convolution.
        image: the shape of the image.
        weight: the shape of the filter.
    """
    padding, dilation = ints_of(binding, "padding"), ints_of(binding, "dilation")
    axes = axes_of(str(binding.attrs["data_layout"]), "NC")[2:]
    taps = axes_of(str(binding.attrs["kernel_layout"]), "OI")[2:]
    sizes = tuple(image[axis] + padding[index] + padding[index + len(axes)] for index, axis in enumerate(axes))
    return sizes, tuple((weight[tap] - 1) * apart + 1 for tap, apart in zip(taps, dilation, strict=True))


def require_window(scope: FunctionScope, op: str, sizes: Sequence[Dim], window: Sequence[Dim]) -> None:
    """Require a window inside the padded image, for the sizes of :func:`window_sizes`."""
    require_spatial(scope, op, "the padded image", sizes, window)


def require_replaced_windows(scope: FunctionScope) -> None:
    """Require the windows of the convolutions recorded in :data:`REPLACED_WINDOWS`."""
    replaced: Any = scope.function.attrs.get(REPLACED_WINDOWS, ())
    for op, sizes, window in replaced:
        require_window(scope, op, sizes, window)


def require_results(scope: FunctionScope, step: Step) -> None:
    """Require the sizes of the results to be 0 or more."""
    for result in step.binding.results:
        shape = shape_of(result)
        scope.require_at_least(step.op, "the result", shape, [0] * len(shape))
