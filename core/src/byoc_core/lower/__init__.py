"""Lowering: from a module with code for all ops to a program of the virtual machine, with planned memory.

The machine verifies each program before running, without trust in the planning: overlapping live tensors are a
``ProgramError``, an alias not permitted by an external function is a ``LinkError``.
"""

from byoc_core.lower.copies_data import copies_data
from byoc_core.lower.lower_module import lower

__all__ = ["copies_data", "lower"]
