"""Lowering: from a module whose ops all have code to a program of the virtual machine, with its memory planned."""

from byoc_core.lower.lower_module import lower

__all__ = ["lower"]
