"""Shapes as data: ops reading only the sizes of a tensor no longer read the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.dims import Dim, bound_symbols, product, shape_symbols
from byoc_core.ir import Binding, IRModule, TensorType, Value
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, Rules, rewrite_module

__all__ = ["FoldShapes"]

Rewritten = Sequence[Value] | None


@dataclass(frozen=True)
class FoldShapes(Pass):
    """Shapes turned into data, and ops changing only the shape of a tensor into ops known to backends.

    ``shape_of`` and ``size`` become a ``shape_to_tensor`` of the sizes, ``full`` a ``broadcast_to``, ``squeeze`` and
    ``expand_dims`` a ``reshape``.

    A size stays with its tensor if the parameters of the function do not determine the symbols of the size. Later
    constant folding turns sizes without symbols into constants.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with shapes folded. Cost: linear."""
        return rewrite_module(module, _RULES)


def _sizes(value: Value, graph: RewriteGraph) -> tuple[Dim, ...] | None:
    """Return the sizes of a value if determined by the parameters of the function, else ``None``."""
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    if shape is None:
        return None
    param_shapes = [param.type.shape or () for param in graph.function.params if isinstance(param.type, TensorType)]
    return shape if shape_symbols(shape) <= bound_symbols(param_shapes) else None


def _shape_of(binding: Binding, graph: RewriteGraph) -> Rewritten:
    sizes = _sizes(binding.operands[0], graph)
    return None if sizes is None else (graph.emit("shape_to_tensor", (), {"sizes": sizes}),)


def _size(binding: Binding, graph: RewriteGraph) -> Rewritten:
    sizes = _sizes(binding.operands[0], graph)
    if sizes is None:
        return None
    vector = graph.emit("shape_to_tensor", (), {"sizes": (product(sizes),)})
    return (graph.emit("reshape", (vector,), {"shape": ()}),)


def _full(binding: Binding, graph: RewriteGraph) -> Rewritten:
    return (graph.emit("broadcast_to", binding.operands, binding.attrs),)


def _reshape(binding: Binding, graph: RewriteGraph) -> Rewritten:
    """Reshape the elements to the result's shape, unless the op also checks at run time for an axis of size 1."""
    before, after = (value.type for value in (*binding.operands, *binding.results))
    if not isinstance(before, TensorType) or not isinstance(after, TensorType) or after.shape is None:
        return None
    if before.num_elements != after.num_elements:
        return None
    return (graph.emit("reshape", binding.operands, {"shape": after.shape}),)


_RULES: Rules = {
    "shape_of": (_shape_of,),
    "size": (_size,),
    "full": (_full,),
    "squeeze": (_reshape,),
    "expand_dims": (_reshape,),
}
