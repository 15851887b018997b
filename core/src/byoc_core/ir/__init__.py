"""The intermediate representation: SSA in a flat list, frozen, with several results per binding."""

from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ir.constants import Constant, ConstantStore, digest_of
from byoc_core.ir.infer import infer_results
from byoc_core.ir.merging import merge_modules
from byoc_core.ir.module import Binding, Function, IRModule, Location, Value, Var
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
from byoc_core.ir.verifier import verify, verify_function
from byoc_core.opset.opdef import (
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
from byoc_core.opset.types import ObjectType, TensorType, Type, is_static, tensor

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
    "merge_modules",
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
