"""Ops of the host better run by numpy than by a native machine.

A native machine spares some microseconds of Python for each step. Two kinds of ops stay with Python nevertheless:

- ops with roundings: the functions of numpy and of a C library round differently, and results must not depend on the
  machine;
- sums, products of matrices and other arithmetic across elements, on larger arrays: numpy has vectors and a BLAS.
  Elementwise arithmetic has vectors on both machines, except on floats of less than 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from byoc_core.dtypes import dtype_info
from byoc_core.opset.contexts import no_flops
from byoc_core.opset.families import find_op
from byoc_core.opset.opdef import OpDef, Trait
from byoc_core.opset.rounding import ROUNDED, Rule
from byoc_core.runtime.graph.document import GraphNode, GraphTensor
from byoc_core.runtime.graph.kernel_engine import KERNEL_ENGINE_KEY
from byoc_core.runtime.graph.module import GraphModule
from byoc_core.runtime.module import RuntimeModule

__all__ = ["find_numpy_op"]

_SMALL = 1024
"""The number of elements of a small array: numpy's loop takes less time than the call of the kernel."""

_MOVING = {Trait.RESHAPING, Trait.DATA_DEPENDENT}
"""The traits of ops without arithmetic, or without a vectorised loop in numpy."""


def find_numpy_op(modules: Iterable[RuntimeModule], symbols: Sequence[str]) -> str | None:
    """Return the name of an op better run by numpy, in one of the external functions; ``None`` without.

    Args:
        modules: the modules of an executable. Only functions of the core's own host have ops run by numpy.
        symbols: the names of the functions.
    """
    for module in modules:
        if module.type_key != KERNEL_ENGINE_KEY or not isinstance(module, GraphModule):
            continue
        for symbol in symbols:
            function = module.document.functions.get(symbol)
            if function is None:
                continue
            nodes = [node for node in function.walk() if node.body is None]
            outputs = [tensor for node in nodes for tensor in node.outputs]
            has_narrow_floats = any(map(_is_narrow_float, (*function.values, *outputs)))
            for node in nodes:
                if not _runs_natively(node, has_vectors=not has_narrow_floats):
                    return node.op
    return None


def _is_narrow_float(tensor: GraphTensor) -> bool:
    info = dtype_info(tensor.dtype)
    return info.kind == "float" and info.bits < 32


def _runs_natively(node: GraphNode, *, has_vectors: bool) -> bool:
    op = find_op(node.op)
    if op is None:  # an op of a plugin: the native machine knows whether it has a kernel
        return True
    if op.flops is no_flops or op.traits & _MOVING:
        return True
    is_fast = (has_vectors and Trait.ELEMENTWISE in op.traits) or all(map(_is_small, node.outputs))
    return is_fast and _is_exact(op, node.outputs)


def _is_exact(op: OpDef, outputs: Iterable[GraphTensor]) -> bool:
    """Return whether all implementations of an op give the same bits."""
    rounding = op.rounding
    if rounding is None:
        return False
    if all(dtype_info(output.dtype).kind in ("bool", "int", "uint") for output in outputs):
        return rounding.integers is Rule.EQUAL
    return rounding.rule is Rule.ULP and rounding.ulps <= ROUNDED.ulps and Trait.EITHER_ZERO not in op.traits


def _is_small(tensor: GraphTensor) -> bool:
    sizes = [dim for dim in tensor.shape if isinstance(dim, int)]
    return len(sizes) == len(tensor.shape) and prod(sizes) <= _SMALL
