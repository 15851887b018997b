"""Sequences, optional values and maps of ONNX: lists during import, or several tensors of the IR at run time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.frontend.onnx.node_context import Imported
    from byoc_core.frontend.onnx.string_tensor import StringTensor
    from byoc_core.ir.module import Value

__all__ = ["MapSequence", "OptionalValue", "RunTimeSequence", "SequenceValue"]


@dataclass(frozen=True, eq=False)
class SequenceValue:
    """An ONNX sequence of known length; each element is an imported form.

    Attributes:
        elements: the tensors, in order.
        dtype: the dtype of the tensors, if stated: an empty sequence has no other.
    """

    elements: tuple[Imported, ...]
    dtype: str | None = None

    def __str__(self) -> str:
        return f"a sequence of {len(self.elements)}"


@dataclass(frozen=True, eq=False)
class RunTimeSequence:
    """An ONNX sequence whose length only running tells: the elements of all tensors, and the shape of each.

    The tensors have the same dtype.

    Attributes:
        elements: of shape ``(n,)``: the elements of all tensors one after the other, each in row-major order.
        shapes: int64 of shape ``(length, rank)``: the shape of each tensor, filled with -1 if the tensor has a lower
            rank. The rank may be a symbol.
    """

    elements: Value
    shapes: Value

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
