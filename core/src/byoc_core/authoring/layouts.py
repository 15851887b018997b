"""Layouts of values in memory, and their change by view ops: for backends with views in place of copies.

The rules belong to the ops (``OpDef.view``); the functions here apply the rule of a binding's op.
"""

from __future__ import annotations

from byoc_core.ir import Binding
from byoc_core.opset.layout import Layout, compact_layout

__all__ = ["Layout", "compact_layout", "is_view_op", "joins_operands", "operand_layouts", "result_layouts"]


def is_view_op(binding: Binding) -> bool:
    """Return whether an op only rearranges elements, and may therefore need no code."""
    return binding.op.view is not None


def joins_operands(binding: Binding) -> bool:
    """Return whether the operands of an op are views of its result."""
    return binding.op.view is not None and binding.op.view.joins


def result_layouts(binding: Binding, layout: Layout) -> list[Layout | None]:
    """Return the layouts of the results if the only operand has ``layout``, within the operand's buffer.

    ``None`` for a result that is no strided view of the buffer, or with sizes not provably equal to the declared sizes.
    """
    rule = binding.op.view
    return [None] * len(binding.results) if rule is None else rule.result_layouts(binding.context(), layout)


def operand_layouts(binding: Binding, layout: Layout) -> list[Layout | None]:
    """Return the layouts required of the operands to give the only result ``layout`` without a copy.

    ``None`` for an operand without a suitable layout.
    """
    rule = binding.op.view
    return [None] * len(binding.operands) if rule is None else rule.operand_layouts(binding.context(), layout)
