"""The registry of byoc's own ops, the builder of functions of these ops, and what an op of one's own is made of."""

from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ir.op_registry import default_ops
from byoc_core.opset.attributes import REQUIRED, AttrKind, AttrSpec, AttrValue
from byoc_core.opset.cases import OpCase, OperandCase, example, integers
from byoc_core.opset.contexts import OpContext, TypeContext, bytes_touched, no_flops
from byoc_core.opset.families.strided_slice import is_open_bound
from byoc_core.opset.layout import Layout, compact_layout
from byoc_core.opset.onnx_spelling import OnnxSpelling
from byoc_core.opset.opdef import OpDef, OperandSpec, Trait
from byoc_core.opset.permutation import Permutable, permute_axis, permute_reduction
from byoc_core.opset.pointwise import binary_op, unary_op
from byoc_core.opset.registry import OpRegistry
from byoc_core.opset.rounding import EXACT, MOVEMENT, NORM, NORMWISE_SUM, ROUNDED, SUM, Rounding, Rule
from byoc_core.opset.value_bounds import ValueFacts
from byoc_core.opset.views import RESHAPED, ViewRule
from byoc_core.opset.windows import RANKS, axes_of, axis_letters

__all__ = [
    "EXACT",
    "MOVEMENT",
    "NORM",
    "NORMWISE_SUM",
    "RANKS",
    "REQUIRED",
    "RESHAPED",
    "ROUNDED",
    "SUM",
    "AttrKind",
    "AttrSpec",
    "AttrValue",
    "FunctionBuilder",
    "Layout",
    "OnnxSpelling",
    "OpCase",
    "OpContext",
    "OpDef",
    "OpRegistry",
    "OperandCase",
    "OperandSpec",
    "Permutable",
    "Rounding",
    "Rule",
    "Trait",
    "TypeContext",
    "ValueFacts",
    "ViewRule",
    "axes_of",
    "axis_letters",
    "binary_op",
    "bytes_touched",
    "compact_layout",
    "default_ops",
    "example",
    "integers",
    "is_open_bound",
    "no_flops",
    "permute_axis",
    "permute_reduction",
    "unary_op",
]
