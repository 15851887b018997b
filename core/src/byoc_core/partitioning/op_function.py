"""Functions of a single op: questions to a backend."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from byoc_core.ir import COMPOSITE, Binding, Function, Value, Var
from byoc_core.transform.rewrite import clone_bindings

__all__ = ["as_function"]


def as_function(binding: Binding, backend: str, attrs: Mapping[str, str] = MappingProxyType({})) -> Function:
    """Return a function of one op, or of a composite, annotated for a backend.

    Args:
        binding: the op.
        backend: the backend.
        attrs: further attributes of the function; empty texts are left out.
    """
    params = {id(operand): Var(operand.name, operand.type) for operand in binding.operands if isinstance(operand, Var)}
    mapping: dict[int, Value] = dict(params)
    (body,) = clone_bindings([binding.claimed_by(None)], mapping)
    name = str(binding.attrs["name"]) if binding.op is COMPOSITE else binding.op.name
    texts = {key: text for key, text in attrs.items() if text}
    return Function(name, tuple(params.values()), (body,), body.results, {"Codegen": backend, **texts})
