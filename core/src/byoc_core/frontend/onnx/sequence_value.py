"""Sequences, optional values and maps of ONNX: lists during import, or several tensors of the IR at run time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from byoc_core.frontend.onnx.string_tensor import StringTensor

if TYPE_CHECKING:
    from byoc_core.frontend.onnx.node_context import Imported
    from byoc_core.ir.module import Value

__all__ = ["STRING", "MapSequence", "MapValue", "OptionalValue", "RunTimeSequence", "SequenceValue"]

STRING = "string"
"""The dtype of an empty sequence of tensors of strings."""


@dataclass(frozen=True, eq=False)
class SequenceValue:
    """An ONNX sequence of known length; each element is an imported form.

    Attributes:
        elements: the tensors, in order.
        dtype: the dtype of the tensors, or ``STRING``, if stated: an empty sequence has no other.
    """

    elements: tuple[Imported, ...]
    dtype: str | None = None

    @property
    def has_strings(self) -> bool:
        """Whether the tensors are tensors of strings."""
        if not self.elements:
            return self.dtype == STRING
        return any(isinstance(element, StringTensor) for element in self.elements)

    def __str__(self) -> str:
        return f"a sequence of {len(self.elements)}"


@dataclass(frozen=True, eq=False)
class RunTimeSequence:
    """An ONNX sequence whose length only running tells: the elements of all tensors, and the shape of each.

    The tensors have the same dtype.

    Attributes:
        elements: of shape ``(n,)``: the elements of all tensors one after the other, each in row-major order; numbers
            or strings.
        shapes: int64 of shape ``(length, rank)``: the shape of each tensor, filled with -1 if the tensor has a lower
            rank. The rank may be a symbol.
    """

    elements: Value | StringTensor
    shapes: Value

    @property
    def has_strings(self) -> bool:
        """Whether the tensors are tensors of strings."""
        return isinstance(self.elements, StringTensor)

    def __str__(self) -> str:
        return "a sequence"


@dataclass(frozen=True, eq=False)
class OptionalValue:
    """An ONNX optional value.

    Attributes:
        is_present: whether there is a value: a bool scalar of the IR if only running tells.
        value: the value; while absent at run time, tensors without elements. ``None`` if absent for certain.
    """

    is_present: bool | Value
    value: Imported | None

    def __str__(self) -> str:
        return "an optional value"


@dataclass(frozen=True, eq=False)
class MapValue:
    """An ONNX map.

    Attributes:
        keys: the keys, integers or strings ``(n,)``; strings in order, without ``index``.
        values: the value of each key, numbers or strings ``(n,)``, the same way.
    """

    keys: Value | StringTensor
    values: Value | StringTensor

    def __str__(self) -> str:
        return "a map"


@dataclass(frozen=True, eq=False)
class MapSequence:
    """An ONNX sequence of maps with equal keys, such as the probabilities of classes by label.

    Attributes:
        keys: the keys, int64 or strings ``(C,)``.
        values: the values of each map, ``(N, C)``.
    """

    keys: Value | StringTensor
    values: Value

    def __str__(self) -> str:
        return "a sequence of maps"
