"""The types declared by a model for its inputs."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from byoc_core.dims import Dim
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx.node_context import Imported
from byoc_core.frontend.onnx.sequence_value import MapValue, OptionalValue, RunTimeSequence
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.frontend.onnx.symbols import SymbolTable
from byoc_core.frontend.onnx.weights import dtype_of
from byoc_core.ir.module import Value, Var
from byoc_core.opset.types import MAX_ARRAY_NBYTES, TensorType

__all__ = ["read_input", "size_names"]


Param = Callable[[str, TensorType], Var]
"""Adds a parameter to the graph's function, for a name and a type."""


def read_input(value: onnx.ValueInfoProto, where: str, symbols: SymbolTable, param: Param) -> Imported:
    """Return an input of a model as parameters: one for a tensor, two for strings, a sequence or a map, and so on.

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
        if type_.HasField("map_type"):
            return self._map(type_.map_type)
        return self._tensor_form(type_, self._name)

    def _map(self, type_: onnx.TypeProto.Map) -> MapValue:
        key = onnx.helper.make_tensor_type_proto(type_.key_type, [])
        count = self._symbols.fresh(f"{self._name}_length")
        if not type_.value_type.HasField("tensor_type") or type_.value_type.tensor_type.shape.dim:
            raise FrontendError(self._where, "is a map of values other than scalars")
        keys = self._vector(f"{self._name}_keys", key, count)
        return MapValue(keys, self._vector(f"{self._name}_values", type_.value_type, count))

    def _tensor_form(self, type_: onnx.TypeProto, name: str) -> Imported:
        if not _is_text(type_):
            return self._param(name, self._tensor(type_))
        shape = self._shape(type_)
        if shape is None:
            raise FrontendError(self._where, "has strings of unknown rank")
        return self._strings(name, shape)

    def _strings(self, name: str, shape: tuple[Dim, ...]) -> StringTensor:
        count = self._symbols.fresh(f"{name}_bytes")
        return StringTensor(
            self._param(f"{name}_bytes", TensorType((count,), "uint8")),
            self._param(f"{name}_lengths", TensorType(shape, "int64")),
        )

    def _value(self, type_: onnx.TypeProto) -> Imported:
        """Return the value of an optional value: a tensor has any sizes, because an absent tensor has no elements."""
        if type_.HasField("sequence_type"):
            return self._sequence(type_.sequence_type.elem_type)
        sizes_of_any = onnx.TypeProto()
        sizes_of_any.CopyFrom(type_)
        for dim in sizes_of_any.tensor_type.shape.dim:
            dim.Clear()
        return self._tensor_form(sizes_of_any, self._name)

    def _sequence(self, type_: onnx.TypeProto) -> RunTimeSequence:
        name = f"{self._name}_elements"
        count, length = self._symbols.fresh(name), self._symbols.fresh(f"{self._name}_length")
        elements = self._vector(name, type_, count)
        shapes = TensorType((length, self._rank(type_)), "int64")
        return RunTimeSequence(elements, self._param(f"{self._name}_shapes", shapes))

    def _vector(self, name: str, type_: onnx.TypeProto, count: Dim) -> Value | StringTensor:
        """Return a vector of elements of the dtype of a tensor."""
        if _is_text(type_):
            return self._strings(name, (count,))
        return self._param(name, TensorType((count,), self._dtype(type_)))

    def _dtype(self, type_: onnx.TypeProto) -> str:
        if not type_.HasField("tensor_type"):
            kind = type_.WhichOneof("value") or "nothing"
            raise FrontendError(
                self._where,
                "is neither a tensor, nor a sequence of tensors, nor one of these as optional value, nor a map",
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


def _is_text(type_: onnx.TypeProto) -> bool:
    return bool(type_.tensor_type.elem_type == onnx.TensorProto.STRING)


def size_names(graph: onnx.GraphProto) -> list[str]:
    """Return the texts of all named sizes of a graph's inputs."""
    return [dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim]


def _read_dim(dim: onnx.TensorShapeProto.Dimension, fallback: str, symbols: SymbolTable) -> Dim:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    if dim.dim_param:
        return symbols.named(dim.dim_param)
    return symbols.fresh(fallback)
