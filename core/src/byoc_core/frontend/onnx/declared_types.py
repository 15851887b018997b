"""The types declared by a model for its inputs."""

from __future__ import annotations

import onnx

from byoc_core.dims import Dim
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx.symbols import SymbolTable
from byoc_core.frontend.onnx.weights import dtype_of
from byoc_core.opset.types import MAX_ARRAY_NBYTES, TensorType

__all__ = ["read_input_type", "size_names"]


def read_input_type(value: onnx.ValueInfoProto, where: str, symbols: SymbolTable) -> TensorType:
    """Return the type declared by a model for an input.

    A negative size is unknown, the same as an absent size: exporters write -1 for unknown sizes, ONNX's checker accepts
    any negative size, and ONNX Runtime reads all of these as unknown.

    Args:
        value: the declaration.
        where: the graph's place in the model, for messages.
        symbols: the symbols of the model; gets a symbol for each unknown size.

    Raises:
        FrontendError: the input is no tensor, has an unsupported dtype, or is too large for an array.
    """
    where = f"{where}, input `{value.name}`"
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "nothing"
        raise FrontendError(where, "is not a tensor", got=kind.removesuffix("_type"))
    tensor = value.type.tensor_type
    dtype = dtype_of(tensor.elem_type, where)
    if not tensor.HasField("shape"):
        return TensorType(None, dtype)
    shape = tuple(_read_dim(dim, f"{value.name}_dim{axis}", symbols) for axis, dim in enumerate(tensor.shape.dim))
    type_ = TensorType(shape, dtype)
    if type_.oversized_axis is not None:
        raise FrontendError(
            f"{where}, axis {type_.oversized_axis}",
            "the declared sizes exceed the largest possible array",
            got=f"{dtype} of shape [{', '.join(map(str, shape))}]",
            expected=f"at most {MAX_ARRAY_NBYTES} bytes",
        )
    return type_


def size_names(graph: onnx.GraphProto) -> list[str]:
    """Return the texts of all named sizes of a graph's inputs."""
    return [dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim]


def _read_dim(dim: onnx.TensorShapeProto.Dimension, fallback: str, symbols: SymbolTable) -> Dim:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    if dim.dim_param:
        return symbols.named(dim.dim_param)
    return symbols.fresh(fallback)
