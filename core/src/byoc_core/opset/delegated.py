"""Delegated ops: operators of ONNX that the host leaves to the package ``onnx``, opaque to passes and backends.

The op ``onnx.<operator>`` has the node as attribute. Delegation is for operators outside neural networks: text and the
decoding of images. Reports count delegated ops.
"""

from __future__ import annotations

from functools import cache

from byoc_core.kernels.delegated import ABSENT, DELEGATED, STRINGS, TENSOR, node_text
from byoc_core.opset.attributes import REQUIRED, AttrKind, AttrSpec
from byoc_core.opset.contexts import TypeContext, no_flops
from byoc_core.opset.opdef import OpDef, OperandSpec, Trait
from byoc_core.opset.types import Type

__all__ = ["ABSENT", "PREFIX", "STRINGS", "TENSOR", "delegated_op", "is_delegated", "node_text"]

PREFIX = "onnx."
"""The start of the names of delegated ops."""


def is_delegated(name: str) -> bool:
    """Return whether an op of this name is delegated."""
    return name.startswith(PREFIX)


def _infer(context: TypeContext) -> tuple[Type, ...]:
    if not context.declared:
        raise context.error("needs its result types (`out_types=`)")
    return context.declared


@cache
def delegated_op(name: str) -> OpDef:
    """Return the delegated op of this name, ``onnx.<operator>``, the same object in each call."""
    return OpDef(
        name,
        (OperandSpec("arrays", variadic=True),),
        _infer,
        attrs=(
            AttrSpec("node", AttrKind.STR, REQUIRED, doc="The node, serialised, in base64."),
            AttrSpec("opset", AttrKind.INT, REQUIRED, doc="The version of the standard operator set."),
            AttrSpec("ml_opset", AttrKind.INT, REQUIRED, doc="The version of the operator set `ai.onnx.ml`."),
            AttrSpec("inputs", AttrKind.STR, REQUIRED, doc="The form of each input."),
            AttrSpec("outputs", AttrKind.STR, REQUIRED, doc="The form of each output."),
        ),
        traits=frozenset({Trait.PURE, Trait.DATA_DEPENDENT}),
        flops=no_flops,
        kernel=DELEGATED,
        declares_results=True,
        doc="Evaluate a node of ONNX by the package `onnx`.",
    )
