"""The supported ops, and the reasons against the others.

The result holds for an op alone, before the rewrites of its region. An accepted op must be compiled in any region: a
kernel writer cannot reject.
"""

from __future__ import annotations

from byoc_core.authoring.csource import C_TYPES, COMPUTED_DTYPES, SCALAR_OPS
from byoc_core.backend.hooks import Rejection
from byoc_core.ir import Binding, TensorType

from byoc_ccompiler.declined import DECLINED
from byoc_ccompiler.regions.widen_halves import widen_binding
from byoc_ccompiler.registry import FAMILIES

__all__ = ["reject_step"]


def reject_step(binding: Binding, *, tutorial: bool) -> Rejection | None:
    """Return the reason against compiling an op, or ``None`` if there is no reason.

    Args:
        binding: the op.
        tutorial: whether to compile the plain form, for elementwise ops only.
    """
    name = binding.op.name
    if name in DECLINED:
        return Rejection(*DECLINED[name])
    if tutorial and name not in SCALAR_OPS:
        return Rejection(
            "tutorial", f"the tutorial form compiles elementwise ops only, not {name}; switch the option `tutorial` off"
        )
    family = FAMILIES.get(name)
    if family is None:
        return Rejection.of_new_op(name)
    for value in (*binding.operands, *binding.results):
        if not isinstance(value.type, TensorType):
            return Rejection("type", f"{name} has an operand or result other than a tensor")
        if value.type.shape is None:
            return Rejection("rank", f"{name} has an operand or result of unknown rank")
        if value.type.dtype not in (COMPUTED_DTYPES if tutorial else C_TYPES):
            return Rejection("dtype", f"C has no type for {value.type.dtype}")
    return family.reject(widen_binding(binding, FAMILIES))
