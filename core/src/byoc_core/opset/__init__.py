"""The definitions of all ops, and the parts of user-defined ops, for compiler and runtime.

Names are imported on first use: a process running an artifact needs few of them. Plugins and users import the public
names from :mod:`byoc_core.ops` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from byoc_core.opset.attributes import REQUIRED, AttrKind, AttrSpec, AttrValue
    from byoc_core.opset.cases import OpCase, OperandCase, example, integers
    from byoc_core.opset.contexts import OpContext, TypeContext, bytes_touched, no_flops
    from byoc_core.opset.delegated import is_delegated
    from byoc_core.opset.families import KERNELS, find_op
    from byoc_core.opset.layout import Layout, compact_layout
    from byoc_core.opset.onnx_spelling import OnnxSpelling
    from byoc_core.opset.opdef import OpDef, OperandSpec, Trait
    from byoc_core.opset.open_bounds import is_open_bound
    from byoc_core.opset.permutation import Permutable, permute_axis, permute_reduction
    from byoc_core.opset.pointwise import binary_op, unary_op
    from byoc_core.opset.rounding import EXACT, MOVEMENT, NORM, NORMWISE_SUM, ROUNDED, SUM, Rounding, Rule
    from byoc_core.opset.types import TensorType
    from byoc_core.opset.value_bounds import LARGEST, ValueFacts
    from byoc_core.opset.views import RESHAPED, ViewRule

__all__ = [
    "EXACT",
    "KERNELS",
    "LARGEST",
    "MOVEMENT",
    "NORM",
    "NORMWISE_SUM",
    "REQUIRED",
    "RESHAPED",
    "ROUNDED",
    "SUM",
    "AttrKind",
    "AttrSpec",
    "AttrValue",
    "Layout",
    "OnnxSpelling",
    "OpCase",
    "OpContext",
    "OpDef",
    "OperandCase",
    "OperandSpec",
    "Permutable",
    "Rounding",
    "Rule",
    "TensorType",
    "Trait",
    "TypeContext",
    "ValueFacts",
    "ViewRule",
    "binary_op",
    "bytes_touched",
    "compact_layout",
    "example",
    "find_op",
    "integers",
    "is_delegated",
    "is_open_bound",
    "no_flops",
    "permute_axis",
    "permute_reduction",
    "unary_op",
]

_HOMES = {
    "attributes": ("REQUIRED", "AttrKind", "AttrSpec", "AttrValue"),
    "cases": ("OpCase", "OperandCase", "example", "integers"),
    "contexts": ("OpContext", "TypeContext", "bytes_touched", "no_flops"),
    "delegated": ("is_delegated",),
    "families": ("KERNELS", "find_op"),
    "layout": ("Layout", "compact_layout"),
    "onnx_spelling": ("OnnxSpelling",),
    "open_bounds": ("is_open_bound",),
    "opdef": ("OpDef", "OperandSpec", "Trait"),
    "permutation": ("Permutable", "permute_axis", "permute_reduction"),
    "pointwise": ("binary_op", "unary_op"),
    "rounding": ("EXACT", "MOVEMENT", "NORM", "NORMWISE_SUM", "ROUNDED", "SUM", "Rounding", "Rule"),
    "types": ("TensorType",),
    "value_bounds": ("LARGEST", "ValueFacts"),
    "views": ("RESHAPED", "ViewRule"),
}


__getattr__ = lazy_names(__name__, _HOMES)
