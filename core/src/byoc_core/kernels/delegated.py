"""The kernel of delegated ops: a node of ONNX, evaluated by the package ``onnx``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import NDArray
from byoc_core.kernels.strings import pack_strings, unpack_strings

__all__ = ["ABSENT", "DELEGATED", "STRINGS", "TENSOR", "node_text"]

TENSOR, STRINGS, ABSENT = "t", "s", "-"
"""The form of an input or output of a node: an array, a tensor of strings in two arrays, or left out."""


def node_text(node: bytes) -> str:
    """Return a serialised node as text for an attribute."""
    return base64.b64encode(node).decode()


@lru_cache(maxsize=256)
def _evaluator(node: str, opset: int, ml_opset: int) -> Any:
    where = "a delegated op"
    try:
        import onnx
        from google.protobuf.message import DecodeError
        from onnx.reference import ReferenceEvaluator
    except ModuleNotFoundError as error:
        raise ExecutionError(
            where, "is computed by the package `onnx`, not installed here", hint="pip install 'byoc-core[onnx]'."
        ) from error
    proto = onnx.NodeProto()
    try:
        proto.ParseFromString(base64.b64decode(node, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise ExecutionError(where, "has an attribute `node` that is no node of ONNX") from error
    if proto.domain not in ("", "ai.onnx.ml"):
        raise ExecutionError(where, "is of a domain that is not evaluated", got=proto.domain)
    return ReferenceEvaluator(proto, opsets={"": opset, "ai.onnx.ml": ml_opset}), proto


def _inputs(arrays: tuple[NDArray, ...], forms: str) -> Iterator[Any]:
    remaining = iter(arrays)
    for form in forms:
        if form == STRINGS:
            yield unpack_strings(next(remaining), next(remaining))
        else:
            yield None if form == ABSENT else next(remaining)


def _run(
    *arrays: NDArray, node: str, opset: int, ml_opset: int, inputs: str, outputs: str
) -> NDArray | tuple[NDArray, ...]:
    """Evaluate a node.

    Args:
        arrays: the arrays of the inputs, in order.
        node: see :func:`node_text`.
        opset: the version of the standard operator set.
        ml_opset: the version of the operator set ``ai.onnx.ml``.
        inputs: a form for each input.
        outputs: a form for each output.

    Raises:
        ExecutionError: the package ``onnx`` is missing, or cannot evaluate the node on these arrays.
    """
    evaluator, proto = _evaluator(node, opset, ml_opset)
    values = dict(zip(proto.input, _inputs(arrays, inputs), strict=True))
    try:
        results = evaluator.run(None, {name: value for name, value in values.items() if name and value is not None})
    except Exception as error:
        raise ExecutionError(
            f"op `{proto.op_type}` of ONNX", f"the package `onnx` failed: {type(error).__name__}: {error}"
        ) from error
    found: list[NDArray] = []
    for form, result in zip(outputs, _present(outputs, results), strict=True):
        if form == STRINGS:
            found += pack_strings(result)
        elif form == TENSOR:
            found.append(np.asarray(result))
    return found[0] if len(found) == 1 else tuple(found)


def _present(outputs: str, results: list[Any]) -> list[Any]:
    """Return a result for each output; an evaluator leaves out the results of absent outputs."""
    remaining = iter(results)
    if len(results) == len(outputs):
        return results
    return [None if form == ABSENT else next(remaining) for form in outputs]


DELEGATED = NumpyKernel(_run, gives=fixed_dtype(None))
"""The kernel of all delegated ops."""
