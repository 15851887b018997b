"""Lowering: from a module whose ops all have code to a program of the virtual machine, with its memory planned."""

from byoc_core.lower.lower_module import lower
from byoc_core.lower.view_ops import is_view_op, operand_layouts, result_layouts
from byoc_core.runtime.plan_storage import Interval, StoragePlan, SymbolicInterval, plan, plan_symbolic

__all__ = [
    "Interval",
    "StoragePlan",
    "SymbolicInterval",
    "is_view_op",
    "lower",
    "operand_layouts",
    "plan",
    "plan_symbolic",
    "result_layouts",
]
