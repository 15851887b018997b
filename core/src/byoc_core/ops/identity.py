"""Detection of bindings with a result identical to the operand.

Pattern search skips these bindings and canonicalisation removes such ops: a wrong answer would change results.
"""

from __future__ import annotations

from byoc_core.ir import Binding, TensorType

__all__ = ["is_identity"]


def is_identity(binding: Binding) -> bool:
    """Return whether the only result is, by construction, the only operand: same type, same elements, same order."""
    rule = binding.op.identity
    if rule is None or len(binding.operands) != 1 or len(binding.results) != 1:
        return False
    type_ = binding.operands[0].type
    is_same = isinstance(type_, TensorType) and type_.shape is not None and type_ == binding.results[0].type
    return is_same and rule(binding.context())
