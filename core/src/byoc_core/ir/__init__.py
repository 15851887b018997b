"""The intermediate representation: SSA in a flat list, frozen, with several results per binding."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# Loaded by name, so that the run side gets types and definitions of ops without parser, printer and builders.
if TYPE_CHECKING:
    from byoc_core.ir.builder import FunctionBuilder
    from byoc_core.ir.constants import Constant, ConstantStore, digest_of
    from byoc_core.ir.infer import infer_results
    from byoc_core.ir.module import Binding, Function, IRModule, Location, Value, Var
    from byoc_core.ir.opdef import (
        REQUIRED,
        AttrKind,
        AttrSpec,
        AttrValue,
        CostContext,
        OpDef,
        OperandSpec,
        OpRegistry,
        Trait,
        TypeContext,
        no_flops,
    )
    from byoc_core.ir.parser import parse_function, parse_module
    from byoc_core.ir.printer import binding_window, print_function, print_module
    from byoc_core.ir.structural import (
        CALL,
        CALL_DPS_PACKED,
        CALL_PACKED,
        COMPOSITE,
        IF,
        LOOP,
        STRUCTURAL_OPS,
        is_pure,
    )
    from byoc_core.ir.structural_equality import structural_hash, structurally_equal
    from byoc_core.ir.types import ObjectType, TensorType, Type, is_static, tensor
    from byoc_core.ir.verifier import verify, verify_function

__all__ = [
    "CALL",
    "CALL_DPS_PACKED",
    "CALL_PACKED",
    "COMPOSITE",
    "IF",
    "LOOP",
    "REQUIRED",
    "STRUCTURAL_OPS",
    "AttrKind",
    "AttrSpec",
    "AttrValue",
    "Binding",
    "Constant",
    "ConstantStore",
    "CostContext",
    "Function",
    "FunctionBuilder",
    "IRModule",
    "Location",
    "ObjectType",
    "OpDef",
    "OpRegistry",
    "OperandSpec",
    "TensorType",
    "Trait",
    "Type",
    "TypeContext",
    "Value",
    "Var",
    "binding_window",
    "digest_of",
    "infer_results",
    "is_pure",
    "is_static",
    "no_flops",
    "parse_function",
    "parse_module",
    "print_function",
    "print_module",
    "structural_hash",
    "structurally_equal",
    "tensor",
    "verify",
    "verify_function",
]

_HOMES = {
    "AttrKind": "opdef",
    "AttrSpec": "opdef",
    "AttrValue": "opdef",
    "Binding": "module",
    "CALL": "structural",
    "CALL_DPS_PACKED": "structural",
    "CALL_PACKED": "structural",
    "COMPOSITE": "structural",
    "Constant": "constants",
    "ConstantStore": "constants",
    "CostContext": "opdef",
    "Function": "module",
    "FunctionBuilder": "builder",
    "IF": "structural",
    "IRModule": "module",
    "LOOP": "structural",
    "Location": "module",
    "ObjectType": "types",
    "OpDef": "opdef",
    "OpRegistry": "opdef",
    "OperandSpec": "opdef",
    "REQUIRED": "opdef",
    "STRUCTURAL_OPS": "structural",
    "TensorType": "types",
    "Trait": "opdef",
    "Type": "types",
    "TypeContext": "opdef",
    "Value": "module",
    "Var": "module",
    "binding_window": "printer",
    "digest_of": "constants",
    "infer_results": "infer",
    "is_pure": "structural",
    "is_static": "types",
    "no_flops": "opdef",
    "parse_function": "parser",
    "parse_module": "parser",
    "print_function": "printer",
    "print_module": "printer",
    "structural_hash": "structural_equality",
    "structurally_equal": "structural_equality",
    "tensor": "types",
    "verify": "verifier",
    "verify_function": "verifier",
}
"""Where each public name lives."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"byoc_core.ir.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
