"""The types declared by a model for its inputs."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from byoc_core.dims import Dim
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx.node_context import Imported
from byoc_core.frontend.onnx.sequence_value import OptionalValue, RunTimeSequence
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.frontend.onnx.symbols import SymbolTable
from byoc_core.frontend.onnx.weights import dtype_of
from byoc_core.ir.module import Var
from byoc_core.opset.types import MAX_ARRAY_NBYTES, TensorType

__all__ = ["read_input", "size_names"]


Param = Callable[[str, TensorType], Var]
"""Adds a parameter to the graph's function, for a name and a type."""


def read_input(value: onnx.ValueInfoProto, where: str, symbols: SymbolTable, param: Param) -> Imported:
    """Return an input of a model as parameters: one for a tensor, two for a sequence, one more for an optional value.

    A negative size is unknown, the same as an absent size: exporters write -1 for unknown sizes, ONNX's checker accepts
    any negative size, and ONNX Runtime reads all of these as unknown.

    Args:
        value: the declaration.
        where: the graph's place in the model, for messages.
        symbols: the symbols of the model; gets a symbol for each unknown size.
        param: adds a parameter.

    Raises:
        FrontendError: the input is something else, has an unsupported dtype, or is too large for an array.
    """
    return _Reader(value.name, f"{where}, input `{value.name}`", symbols, param).read(value.type)


class _Reader:
    def __init__(self, name: str, where: str, symbols: SymbolTable, param: Param) -> None:
        self._name = name
        self._where = where
        self._symbols = symbols
        self._param = param

    def read(self, type_: onnx.TypeProto) -> Imported:
        if type_.HasField("optional_type"):
            is_present = self._param(f"{self._name}_is_present", TensorType((), "bool"))
            return OptionalValue(is_present, self._value(type_.optional_type.elem_type))
        if type_.HasField("sequence_type"):
            return self._sequence(type_.sequence_type.elem_type)
        return self._tensor_form(type_, self._name)

    def _tensor_form(self, type_: onnx.TypeProto, name: str) -> Imported:
        if type_.tensor_type.elem_type != onnx.TensorProto.STRING:
            return self._param(name, self._tensor(type_))
        shape = self._shape(type_)
        if shape is None:
            raise FrontendError(self._where, "has strings of unknown rank")
        count = self._symbols.fresh(f"{self._name}_bytes")
        return StringTensor(
            self._param(f"{name}_bytes", TensorType((count,), "uint8")),
            self._param(f"{name}_lengths", TensorType(shape, "int64")),
        )

    def _value(self, type_: onnx.TypeProto) -> Imported:
        """Return the value of an optional value: a tensor has any sizes, because an absent tensor has no elements."""
        if type_.HasField("sequence_type"):
            return self._sequence(type_.sequence_type.elem_type)
        tensor = self._tensor(type_)
        shape = [self._symbols.fresh(f"{self._name}_dim{axis}") for axis in range(len(tensor.shape or ()))]
        return self._param(self._name, TensorType(None if tensor.shape is None else tuple(shape), tensor.dtype))

    def _sequence(self, type_: onnx.TypeProto) -> RunTimeSequence:
        dtype, rank = self._dtype(type_), self._rank(type_)
        count, length = (self._symbols.fresh(f"{self._name}_{name}") for name in ("elements", "length"))
        return RunTimeSequence(
            self._param(f"{self._name}_elements", TensorType((count,), dtype)),
            self._param(f"{self._name}_shapes", TensorType((length, rank), "int64")),
        )

    def _dtype(self, type_: onnx.TypeProto) -> str:
        if not type_.HasField("tensor_type"):
            kind = type_.WhichOneof("value") or "nothing"
            raise FrontendError(
                self._where,
                "is neither a tensor, nor a sequence of tensors, nor one of these as optional value",
                got=kind.removesuffix("_type"),
            )
        return dtype_of(type_.tensor_type.elem_type, self._where)

    def _rank(self, type_: onnx.TypeProto) -> Dim:
        if not type_.tensor_type.HasField("shape"):
            return self._symbols.fresh(f"{self._name}_rank")
        return len(type_.tensor_type.shape.dim)

    def _shape(self, type_: onnx.TypeProto) -> tuple[Dim, ...] | None:
        if not type_.tensor_type.HasField("shape"):
            return None
        dims = enumerate(type_.tensor_type.shape.dim)
        return tuple(_read_dim(dim, f"{self._name}_dim{axis}", self._symbols) for axis, dim in dims)

    def _tensor(self, proto: onnx.TypeProto) -> TensorType:
        dtype = self._dtype(proto)
        shape = self._shape(proto)
        if shape is None:
            return TensorType(None, dtype)
        type_ = TensorType(shape, dtype)
        if type_.oversized_axis is not None:
            raise FrontendError(
                f"{self._where}, axis {type_.oversized_axis}",
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
