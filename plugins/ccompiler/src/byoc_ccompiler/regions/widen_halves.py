"""Ops on 16-bit floats, computed in float32 between two casts: what their definition says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from byoc_core.ir import AttrValue, Binding, Constant, Function, TensorType, Value, Var

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.regions.writer import RegionWriter

__all__ = ["HALVES", "widen_binding", "widen_halves"]

HALVES = ("float16", "bfloat16")
"""The floats that C stores, but does not compute with."""


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
    """Gives the op as it is compiled: on float32 where it is of 16-bit floats and its family does not take these."""
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


def widen_halves(function: Function, families: Mapping[str, KernelFamily]) -> Function:
    """Gives the function with casts around every op that computes with 16-bit floats.

    Each op still rounds its result once, so the numbers are those of the op by itself. Neighbouring casts are computed
    in the loops of the ops between them.
    """
    if not any(_needs_widening(binding, families) for binding in function.bindings):
        return function
    writer = RegionWriter(function)
    for binding in function.bindings:
        if not _needs_widening(binding, families):
            writer.copy(binding)
            continue
        operands = []
        for operand in binding.operands:
            value = writer.value(operand)
            if _is_half(value):
                (value,) = writer.emit(binding, "cast", [value], {"dtype": "float32"})
            operands.append(value)
        results = writer.emit(binding, binding.op.name, operands, _wide_attrs(binding))
        for index, (old, new) in enumerate(zip(binding.results, results, strict=True)):
            if _is_half(old):
                assert isinstance(old.type, TensorType)
                (results[index],) = writer.emit(binding, "cast", [new], {"dtype": old.type.dtype})
        writer.replace(binding, results)
    return writer.finish()
