"""The answer of the backend to a single op, for the hooks and for code generation."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_core.authoring.csource import COMPUTED_DTYPES
from byoc_core.backend.hooks import Rejection
from byoc_core.ir import Binding, Function, TensorType, Trait, cited_symbols, given_symbols, type_symbols

from byoc_opencl.declined import DECLINED
from byoc_opencl.kernels import FAMILIES

__all__ = ["function_rejections", "is_view", "reject_op"]


def is_view(binding: Binding) -> bool:
    """Return whether the result of an op is the operand's memory under another shape."""
    return Trait.RESHAPING in binding.op.traits


def reject_op(binding: Binding) -> Rejection | None:
    """Return the reason against an op, or ``None``."""
    op = binding.op.name
    family = FAMILIES.get(op)
    if family is None and not is_view(binding):
        return Rejection(*DECLINED[op]) if op in DECLINED else Rejection.of_new_op(op)
    for value in (*binding.operands, *binding.results):
        type_ = value.type
        if not isinstance(type_, TensorType) or type_.shape is None:
            return Rejection("type", f"{op} needs tensors of known rank, got {type_}")
        if type_.dtype not in COMPUTED_DTYPES:
            return Rejection("dtype", f"{op} has no kernel for {type_.dtype}")
        if type_.oversized_axis is not None:
            return Rejection("size", f"{op} has a tensor beyond the largest array")
    return None if family is None else family.reject(binding)


def function_rejections(function: Function) -> Iterator[Rejection]:
    """Yield a reason for every unsupported op of a function, and a reason for sizes not given by a call."""
    for binding in function.bindings:
        rejection = reject_op(binding)
        if rejection is not None:
            yield rejection
    values = (*function.params, *function.results)
    cited = type_symbols(values) | cited_symbols(function.bindings)
    unknown = cited.difference(*(given_symbols(value.type) for value in values))
    if unknown:
        names = ", ".join(f"`{name}`" for name in sorted(unknown))
        yield Rejection("dynamic-shape", f"no shape of a parameter or result of the region determines {names}")
