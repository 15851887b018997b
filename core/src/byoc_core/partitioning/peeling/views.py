"""The view ops free to leave a region, and the contiguity of the views of memory in these ops."""

from __future__ import annotations

from byoc_core.ir import Binding, TensorType, Value
from byoc_core.opset.layout import Layout, compact_layout

__all__ = ["has_contiguous_views", "is_view", "joins"]


def is_view(binding: Binding) -> bool:
    """Return whether each result is a view of the operand's memory, or each operand a view of the result's.

    The views provably have the declared sizes, lie in that memory and share no element: there is no check at run time.
    """
    rule = binding.op.view
    if rule is None or not all(_has_shape(value) for value in (*binding.operands, *binding.results)):
        return False
    layouts = _layouts(binding)
    if rule.is_whole:  # the result has each element of the operand once, at any place
        return None not in layouts
    context = binding.context()
    base_shape = context.result_shape() if rule.joins else context.operand_shape()
    return all(layout is not None and layout.fits(base_shape) and layout.is_injective() for layout in layouts)


def has_contiguous_views(binding: Binding) -> bool:
    """Return whether every view of a view op is contiguous if its base is contiguous."""
    return all(layout is not None and layout.is_compact for layout in _layouts(binding))


def joins(binding: Binding) -> bool:
    """Return whether the operands of an op are views of the result."""
    return binding.op.view is not None and binding.op.view.joins


def _layouts(binding: Binding) -> list[Layout | None]:
    """Return the layouts of a view op's views in a contiguous base."""
    rule, context = binding.op.view, binding.context()
    if rule is None:
        return [None]
    if rule.joins:
        return rule.operand_layouts(context, compact_layout(context.result_shape()))
    return rule.result_layouts(context, compact_layout(context.operand_shape()))


def _has_shape(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.shape is not None
