"""Lowering: from a module with code for all ops to a program of the virtual machine, with planned memory."""

from byoc_core.lower.lower_module import lower

__all__ = ["lower"]
