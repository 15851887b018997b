"""Lowering: from a module whose ops all have code to a program of the virtual machine, with its memory planned."""

from byoc_core.lower.lower_module import lower
from byoc_core.runtime.plan_storage import Interval, StoragePlan, plan

__all__ = ["Interval", "StoragePlan", "lower", "plan"]
