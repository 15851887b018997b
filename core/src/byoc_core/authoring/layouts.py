"""Layouts of values in memory, and how view ops change them: for backends that look at memory instead of copying it."""

from __future__ import annotations

from byoc_core.lower.view_ops import is_view_op, operand_layouts, result_layouts
from byoc_core.vm.layout import Layout, compact_layout

__all__ = ["Layout", "compact_layout", "is_view_op", "operand_layouts", "result_layouts"]
