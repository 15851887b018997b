"""Small tensors known during import, with symbolic sizes inside, for computing shapes.

ONNX computes shapes with tensors: ``Reshape(x, Concat(Gather(Shape(x), 0), [-1]))``. The importer carries such tensors
as :class:`ShapeValue`: arrays of dimensions, and of quotients of dimensions for models computing sizes in floats
(``Cast(Floor(Cast(n) * 0.5))``). The tensors become IR if an op needs the elements as data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dims import Dim, DimExpr
from byoc_core.dtypes import dtype_name, is_float, to_numpy
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ir.module import Location, Value, Var

__all__ = ["FLOAT_SHAPE_DTYPES", "MAX_ELEMENTS", "SHAPE_DTYPES", "Element", "Objects", "Ratio", "ShapeValue"]

SHAPE_DTYPES = frozenset({"int32", "int64", "bool"})
"""The dtypes for computing shapes."""

FLOAT_SHAPE_DTYPES = frozenset({"float32", "float64"})
"""The dtypes used by models for intermediate sizes; exact for sizes below 2**24."""

MAX_ELEMENTS = 64
"""Constants of more elements are data, not shapes."""

_MAX_RANK = 2
_MAX_TERMS = 64  # sizes of models are short; a chain of products would grow without bound
_MAX_ATOMS = 256
_MAX_DENOMINATOR = 1 << 20

Objects = npt.NDArray[np.object_]
"""An array of elements."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient of a dimension and a positive integer: an element of a tensor of floats."""

    numerator: Dim
    denominator: int = 1

    def __str__(self) -> str:
        return str(self.numerator) if self.denominator == 1 else f"({self.numerator})/{self.denominator}"


Element = Dim | Ratio


@dataclass(frozen=True)
class ShapeValue:
    """A tensor of at most two axes with known dimensions as elements (bools: 0 or 1; floats: ratios).

    Attributes:
        elements: the elements in row-major order.
        dtype: one of ``SHAPE_DTYPES`` or ``FLOAT_SHAPE_DTYPES``.
        shape: the sizes of the tensor; one axis if omitted.
    """

    elements: tuple[Element, ...]
    dtype: str = "int64"
    shape: tuple[int, ...] = (-1,)

    def __post_init__(self) -> None:
        if self.shape == (-1,):
            object.__setattr__(self, "shape", (len(self.elements),))

    @classmethod
    def from_array(cls, array: npt.NDArray[np.generic]) -> ShapeValue | None:
        """Return a small array as a shape value.

        ``None`` for large arrays, other dtypes, and floats not finite or with large denominators.
        """
        if array.ndim > _MAX_RANK or array.size > MAX_ELEMENTS:
            return None
        name = array.dtype.name
        if name in SHAPE_DTYPES:
            return cls(tuple(int(item) for item in array.reshape(-1)), dtype_name(array.dtype), array.shape)
        if name not in FLOAT_SHAPE_DTYPES or not np.isfinite(array.astype(np.float64)).all():
            return None
        ratios = [Ratio(*item.as_integer_ratio()) for item in array.astype(np.float64).reshape(-1).tolist()]
        if any(ratio.denominator > _MAX_DENOMINATOR for ratio in ratios):
            return None
        return cls(tuple(ratios), name, array.shape)

    @classmethod
    def from_objects(cls, objects: Any, dtype: str) -> ShapeValue | None:
        """Return an array of elements as a shape value.

        ``None`` if the array is large, has many axes, or contains an integer overflowing its type, with wraparound at
        run time.
        """
        array = np.asarray(objects, object)
        if array.ndim > _MAX_RANK or array.size > MAX_ELEMENTS:
            return None
        value = cls(tuple(array.reshape(-1).tolist()), dtype, array.shape)
        return value if value.is_representable else None

    @classmethod
    def scalar(cls, element: Element, dtype: str = "int64") -> ShapeValue:
        """Return a single element without axes."""
        return cls((element,), dtype, ())

    @property
    def objects(self) -> Objects:
        """The elements as an array."""
        array = np.empty(prod(self.shape), object)
        array[:] = self.elements
        return array.reshape(self.shape)

    @property
    def dims(self) -> tuple[Dim, ...] | None:
        """The elements as dimensions; ``None`` for floats."""
        dims = tuple(element for element in self.elements if not isinstance(element, Ratio))
        return dims if len(dims) == len(self.elements) else None

    @property
    def ints(self) -> tuple[int, ...] | None:
        """The elements as integers; ``None`` if any element is symbolic or a float."""
        ints = tuple(element for element in self.elements if isinstance(element, int))
        return ints if len(ints) == len(self.elements) else None

    @property
    def is_representable(self) -> bool:
        """Whether the tensor's type can represent all its integers, and symbolic elements are short.

        Symbolic elements are assumed to be computed without overflow.
        """
        bits = 31 if self.dtype == "int32" else 63
        return all(_is_representable(element, bits) for element in self.elements)

    @property
    def is_static(self) -> bool:
        """Whether no element is symbolic."""
        return self.to_array() is not None

    def to_array(self) -> npt.NDArray[np.generic] | None:
        """Return the tensor as an array, or ``None`` if any element is symbolic."""
        numbers: list[float] = []
        for element in self.elements:
            numerator = element.numerator if isinstance(element, Ratio) else element
            if not isinstance(numerator, int):
                return None
            numbers.append(numerator / element.denominator if isinstance(element, Ratio) else numerator)
        return np.array(numbers, to_numpy(self.dtype)).reshape(self.shape)

    def emit(self, builder: FunctionBuilder, location: Location | None = None) -> Value:
        """Return the tensor as IR value: a constant, or ops computing the elements from sizes at run time."""
        array = self.to_array()
        if array is not None:
            return builder.const(array)
        ratios = [element if isinstance(element, Ratio) else Ratio(element) for element in self.elements]
        value = _bind(builder, "shape_to_tensor", (), location, sizes=[ratio.numerator for ratio in ratios])
        if self.dtype != "int64":
            value = _bind(builder, "cast", (value,), location, dtype=self.dtype)
        if is_float(self.dtype) and any(ratio.denominator != 1 for ratio in ratios):
            denominators = np.array([ratio.denominator for ratio in ratios], to_numpy(self.dtype))
            value = _bind(builder, "divide", (value, builder.const(denominators)), location)
        if self.shape != (len(ratios),):
            value = _bind(builder, "reshape", (value,), location, shape=self.shape)
        return value

    def __str__(self) -> str:
        return str(np.vectorize(str, [object])(self.objects).tolist()).replace("'", "") if self.elements else "[]"


def _is_representable(element: Element, bits: int) -> bool:
    if isinstance(element, Ratio):
        return _is_representable(element.numerator, 63) and element.denominator.bit_length() <= 63
    if isinstance(element, int):
        return -(1 << bits) <= element < 1 << bits
    return (
        len(element.terms) <= _MAX_TERMS
        and _is_short(element)
        and all(
            factor.bit_length() <= bits and sum(exponent for _, exponent in monomial) <= _MAX_TERMS
            for monomial, factor in element.terms
        )
    )


def _is_short(element: DimExpr) -> bool:
    """Return whether the text of a size is short: ``abs(n-m)`` of itself doubles with each step."""
    pending, num_atoms = [(element, 1)], 0
    while pending:
        dim, times = pending.pop()
        for monomial, _ in dim.terms:
            for atom, exponent in monomial:
                num_atoms += times * exponent
                pending += [(arg, times * exponent) for arg in atom.args if isinstance(arg, DimExpr)]
        if num_atoms > _MAX_ATOMS:
            return False
    return True


def _bind(
    builder: FunctionBuilder, op: str, operands: Sequence[Value], location: Location | None, **attrs: object
) -> Var:
    return builder.bind(op, operands, attrs, location=location).results[0]
