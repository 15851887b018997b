"""The attributes of a node: typed access, and the check for unread attributes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from byoc_core.dtypes import dtype_info
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx.weights import dtype_of, to_array

__all__ = ["NodeAttributes"]

_KINDS: dict[int, str] = {
    onnx.AttributeProto.INT: "an int",
    onnx.AttributeProto.INTS: "ints",
    onnx.AttributeProto.FLOAT: "a float",
    onnx.AttributeProto.FLOATS: "floats",
    onnx.AttributeProto.STRING: "a string",
    onnx.AttributeProto.STRINGS: "strings",
    onnx.AttributeProto.TENSOR: "a tensor",
    onnx.AttributeProto.GRAPH: "a graph",
}


class NodeAttributes:
    """The attributes of a node.

    Every attribute must be read (or declared ignored): an unread attribute could silently change the meaning of the
    node. Reading an attribute of another type, or a missing attribute without default, raises ``FrontendError``.

    Args:
        proto: the node.
        label: the node's label in messages.
        directory: the folder for external data, or ``None`` for a model without file.

    Attributes:
        label: the node's label in messages.
    """

    def __init__(self, proto: onnx.NodeProto, label: str, directory: Path | None) -> None:
        self.label = label
        self._directory = directory
        self._attributes = {attribute.name: attribute for attribute in proto.attribute}
        self._unread = set(self._attributes)

    def has_attr(self, name: str) -> bool:
        """Return whether the node has an attribute."""
        return name in self._attributes

    def attr_int(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute."""
        return int(self._read(name, onnx.AttributeProto.INT, "i", default))

    def attr_flag(self, name: str, *, default: bool = False) -> bool:
        """Return an integer attribute as a truth value."""
        return bool(self.attr_int(name, int(default)))

    def attr_ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return an attribute with a list of integers."""
        return tuple(self._read(name, onnx.AttributeProto.INTS, "ints", default))

    def attr_float(self, name: str, default: float | None = None) -> float:
        """Return a float attribute."""
        return float(self._read(name, onnx.AttributeProto.FLOAT, "f", default))

    def attr_floats(self, name: str) -> tuple[float, ...]:
        """Return an attribute with a list of floats."""
        return tuple(self._read(name, onnx.AttributeProto.FLOATS, "floats", None))

    def attr_string(self, name: str, default: str | None = None) -> str:
        """Return a string attribute."""
        value = self._read(name, onnx.AttributeProto.STRING, "s", default)
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def attr_strings(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return an attribute with a list of strings."""
        values = self._read(name, onnx.AttributeProto.STRINGS, "strings", default)
        return tuple(value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in values)

    def attr_dtype(self, name: str) -> str:
        """Return an attribute with a number of ``TensorProto.DataType``, or with a dtype's name, as dtype.

        Raises:
            FrontendError: no dtype has this number.
            IRTypeError: no dtype has this name; the importer of the graph adds the node's name.
        """
        attribute = self._attributes.get(name)
        if attribute is not None and attribute.type == onnx.AttributeProto.STRING:
            return dtype_info(self.attr_string(name)).name
        return dtype_of(self.attr_int(name), f"{self.label}, attribute `{name}`")

    def attr_array(self, name: str) -> npt.NDArray[np.generic]:
        """Return a tensor attribute as an array."""
        tensor = self._read(name, onnx.AttributeProto.TENSOR, "t", None)
        return to_array(tensor, f"{self.label}, attribute `{name}`", self._directory)

    def attr_proto(self, name: str) -> onnx.TensorProto:
        """Return a tensor attribute in ONNX's form."""
        tensor: onnx.TensorProto = self._read(name, onnx.AttributeProto.TENSOR, "t", None)
        return tensor

    def attr_graph(self, name: str) -> onnx.GraphProto:
        """Return a graph attribute."""
        graph: onnx.GraphProto = self._read(name, onnx.AttributeProto.GRAPH, "g", None)
        return graph

    def ignore_attrs(self, *names: str) -> None:
        """Mark attributes without influence on the node's results as read."""
        self._unread.difference_update(names)

    def _read(self, name: str, kind: int, field: str, default: object) -> Any:
        attribute = self._attributes.get(name)
        self._unread.discard(name)
        if attribute is None:
            if default is None:
                raise self.error(f"lacks attribute `{name}`")
            return default
        if attribute.type != kind:
            type_names = {int(number): text.lower() for text, number in onnx.AttributeProto.AttributeType.items()}
            raise self.error(
                f"attribute `{name}` has the wrong type",
                got=type_names.get(attribute.type, attribute.type),
                expected=_KINDS[kind],
            )
        return getattr(attribute, field)

    def finish(self) -> None:
        """Check that every attribute was read.

        Raises:
            FrontendError: an attribute was not read because it is unknown, or this variant of the op is not supported.
        """
        if self._unread:
            raise self.error("has unsupported attributes", got=", ".join(sorted(self._unread)))

    def error(
        self, problem: str, *, got: object = None, expected: object = None, hint: str | None = None
    ) -> FrontendError:
        """Return an error with the names of the model and the node, to be raised."""
        return FrontendError(self.label, problem, got=got, expected=expected, hint=hint)
