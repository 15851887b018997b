"""Rows of measured ops in tables of costs: the features of an op, and its setting among other ops."""

from __future__ import annotations

import json
import math
from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple

from byoc_core.ir import Binding, Constant, Function, TensorType, Trait, Value

__all__ = ["CostRow", "Setting"]

_NUM_AXES = 5
_SHAPE_WEIGHT = 0.5
"""The distance of a factor of two in an axis, relative to a factor of two in operations or bytes."""


class Setting(NamedTuple):
    """The neighbours of an op in a module, by op name; empty if unknown, several, or outside of the function.

    Attributes:
        maker: the op with a result read by this op alone.
        reader: the only op reading the result.
    """

    maker: str = ""
    reader: str = ""

    @classmethod
    def of(cls, function: Function) -> Setting:
        """Return the setting noted by the core in the attributes of a function of one op."""
        return cls(str(function.attrs.get("maker", "")), str(function.attrs.get("reader", "")))


@dataclass(frozen=True, slots=True)
class CostRow:
    """A measured op.

    Attributes:
        op: the name.
        kind: a family of similar ops: elementwise ops, ops without arithmetic, others.
        dtypes: of operands and results, with a mark for constant operands.
        attributes: all attributes, as text.
        flops: operations.
        nbytes: bytes read and written.
        shapes: of the first two operands and the first result.
        seconds: measured; 0 for an op to be estimated.
        maker: the op with the first operand as result; see :class:`Setting`.
        parallel_seconds: measured on two threads; 0 if not measured.
    """

    op: str
    kind: str
    dtypes: str
    attributes: str
    flops: int
    nbytes: int
    shapes: tuple[tuple[int, ...], ...]
    seconds: float = 0.0
    maker: str = ""
    parallel_seconds: float = 0.0

    @classmethod
    def of(
        cls, binding: Binding, seconds: float = 0.0, constants: Container[int] = (), maker: str = ""
    ) -> CostRow | None:
        """Return the row of an op; ``None`` for sizes known only at run time.

        Args:
            binding: the op.
            seconds: measured.
            constants: the ``id`` of each variable known to be a constant.
            maker: the op with the first operand as result; empty if unknown.
        """
        context = binding.context()
        flops, nbytes = binding.op.flops(context), binding.op.nbytes(context)
        shapes = [_shape(value) for value in (*binding.operands, *binding.results)]
        operands = (_dtype(value, isinstance(value, Constant) or id(value) in constants) for value in binding.operands)
        dtypes = ",".join(operands) + "->" + ",".join(_dtype(value, False) for value in binding.results)
        sized = [shape for shape in shapes if shape is not None]
        if not isinstance(flops, int) or not isinstance(nbytes, int) or len(sized) < len(shapes):
            return None
        count = len(binding.operands)
        shapes_of_row = (*sized[: min(2, count)], *([()] * (2 - min(2, count))), *sized[count : count + 1])
        attributes = json.dumps({name: str(binding.attrs[name]) for name in sorted(binding.attrs)})
        kind = _kind(binding, flops)
        return cls(binding.op.name, kind, dtypes, _short(attributes), flops, nbytes, shapes_of_row, seconds, maker)

    @property
    def kind_of_numbers(self) -> str:
        """Return the dtypes, with a mark for dequantised operands: backends compute with the integers behind."""
        return f"{self.dtypes} q" if self.maker == "dequantize" else self.dtypes

    @property
    def features(self) -> tuple[float, ...]:
        """Return logarithms of work and sizes: distances of features are factors of two."""
        work = (math.log2(1 + self.flops), math.log2(1 + self.nbytes))
        axes = (axis for shape in self.shapes for axis in _axes(shape))
        return (*work, *(_SHAPE_WEIGHT * math.log2(1 + axis) for axis in axes))


def _shape(value: Value) -> tuple[int, ...] | None:
    """Return the shape of a value; ``None`` if not known."""
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    if shape is None:
        return None
    sizes = tuple(size for size in shape if isinstance(size, int))
    return sizes if len(sizes) == len(shape) else None


def _dtype(value: Value, is_constant: bool) -> str:
    dtype = value.type.dtype if isinstance(value.type, TensorType) else "?"
    return f"{dtype}*" if is_constant else str(dtype)


def _kind(binding: Binding, flops: int) -> str:
    if Trait.ELEMENTWISE in binding.op.traits:
        return "elementwise"
    return "arithmetic" if flops else "moves"


_LONGEST = 120


def _short(text: str) -> str:
    """Return a text of bounded length: only equality counts."""
    return text if len(text) <= _LONGEST else text[:_LONGEST]


def _axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a fixed number of axes, last axes last; leading axes of higher ranks are joined."""
    if len(shape) > _NUM_AXES:
        split = len(shape) - _NUM_AXES + 1
        return (math.prod(shape[:split]), *shape[split:])
    return (*([0] * (_NUM_AXES - len(shape))), *shape)
