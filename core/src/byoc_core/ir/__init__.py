"""The intermediate representation: SSA in a flat list, frozen, with several results per binding."""

from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ir.constants import Constant, ConstantStore, digest_of
from byoc_core.ir.infer import infer_results
from byoc_core.ir.merging import merge_modules
from byoc_core.ir.module import Binding, Function, IRModule, Location, Value, Var
from byoc_core.ir.parser import parse_function, parse_module
from byoc_core.ir.printer import EXTERNAL_MODULES, binding_window, print_function, print_module
from byoc_core.ir.sizes import cited_symbols, given_symbols, type_symbols
from byoc_core.ir.states import StateVariable, declare_states, state_values, states_of
from byoc_core.ir.structural import (
    CALL,
    CALL_DPS_PACKED,
    CALL_PACKED,
    COMPOSITE,
    IF,
    LOOP,
    STRUCTURAL_OPS,
    has_effect,
    is_pure,
)
from byoc_core.ir.structural_equality import structural_hash, structurally_equal
from byoc_core.ir.verifier import verify, verify_function
from byoc_core.ir.weights import FixedWeight, declare_weights, weights_of
from byoc_core.opset.attributes import REQUIRED, AttrKind, AttrSpec, AttrValue
from byoc_core.opset.contexts import OpContext, TypeContext, no_flops
from byoc_core.opset.opdef import OpDef, OperandSpec, Trait
from byoc_core.opset.registry import OpRegistry
from byoc_core.opset.types import ObjectType, TensorType, Type, is_static, tensor

CostContext = OpContext
"""The name of :class:`OpContext` before 0.3."""

__all__ = [
    "CALL",
    "CALL_DPS_PACKED",
    "CALL_PACKED",
    "COMPOSITE",
    "EXTERNAL_MODULES",
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
    "FixedWeight",
    "Function",
    "FunctionBuilder",
    "IRModule",
    "Location",
    "ObjectType",
    "OpContext",
    "OpDef",
    "OpRegistry",
    "OperandSpec",
    "StateVariable",
    "TensorType",
    "Trait",
    "Type",
    "TypeContext",
    "Value",
    "Var",
    "binding_window",
    "cited_symbols",
    "declare_states",
    "declare_weights",
    "digest_of",
    "given_symbols",
    "has_effect",
    "infer_results",
    "is_pure",
    "is_static",
    "merge_modules",
    "no_flops",
    "parse_function",
    "parse_module",
    "print_function",
    "print_module",
    "state_values",
    "states_of",
    "structural_hash",
    "structurally_equal",
    "tensor",
    "type_symbols",
    "verify",
    "verify_function",
    "weights_of",
]
