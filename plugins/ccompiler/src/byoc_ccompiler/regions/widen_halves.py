"""Ops on 16-bit floats, computed in float32 between two casts, as defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from byoc_core.ir import AttrValue, Binding, Constant, IRModule, TensorType, Value, Var
from byoc_core.transform import RewriteGraph, rewrite_module

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.steps import dtype_of

__all__ = ["HALVES", "widen_binding", "widen_halves"]

HALVES = ("float16", "bfloat16")
"""The floats stored by C, but not computed with."""


def _is_half(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in HALVES


def _needs_widening(binding: Binding, families: Mapping[str, KernelFamily]) -> bool:
    family = families.get(binding.op.name)
    if family is None or family.takes_halves or binding.op.name == "cast":
        return False
    return any(map(_is_half, (*binding.operands, *binding.results)))


def _wide_attrs(binding: Binding) -> dict[str, AttrValue]:
    return {name: "float32" if value in HALVES else value for name, value in binding.attrs.items()}


def widen_binding(binding: Binding, families: Mapping[str, KernelFamily]) -> Binding:
    """Return the op as compiled: with float32 in place of 16-bit floats, unless the family takes these.

    A family judges this form of an op (:func:`byoc_ccompiler.support.reject_step`), before any rewrite. The form must
    equal the ops written by :func:`widen_halves`.
    """
    if not _needs_widening(binding, families):
        return binding

    def widened(value: Value) -> Value:
        if not _is_half(value):
            return value
        assert isinstance(value.type, TensorType)
        type_ = replace(value.type, dtype="float32")
        return Constant(value.digest, type_) if isinstance(value, Constant) else Var(value.name, type_)

    operands = tuple(map(widened, binding.operands))
    results = tuple(
        result if not _is_half(result) else Var(result.name, widened(result).type) for result in binding.results
    )
    return replace(binding, operands=operands, results=results, attrs=_wide_attrs(binding))


def widen_halves(module: IRModule, families: Mapping[str, KernelFamily]) -> IRModule:
    """Return the module with casts around every op computing with 16-bit floats.

    Each op still rounds the result once, with the same numbers as the op alone. Neighbouring casts are computed in the
    loops of the ops between the casts.
    """

    def widen(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
        if not _needs_widening(binding, families):
            return None
        operands = [_cast(graph, value, "float32") if _is_half(value) else value for value in binding.operands]
        wide = graph.bind(binding.op, operands, _wide_attrs(binding)).results
        pairs = zip(binding.results, wide, strict=True)
        return [_cast(graph, new, dtype_of(old)) if _is_half(old) else new for old, new in pairs]

    return rewrite_module(module, dict.fromkeys(families, (widen,)))


def _cast(graph: RewriteGraph, value: Value, dtype: str) -> Var:
    return graph.emit("cast", (value,), {"dtype": dtype})
