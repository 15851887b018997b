"""Conditions of patterns on a value or an attribute, as data with words for the expected and the found value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_name, is_float
from byoc_core.ir import TensorType, Value
from byoc_core.pattern.index import FunctionIndex

__all__ = ["Condition", "HasDtype", "HasRank", "HasShape", "HoldsArray", "Predicate", "Where", "listed"]


def listed(items: object) -> str:
    """Return items as a list in words: ``a, b or c``."""
    texts = [str(item) for item in items] if isinstance(items, tuple | list) else [str(items)]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


@dataclass(frozen=True, slots=True)
class Predicate:
    """A test of an attribute's value, with a text.

    Attributes:
        test: returns whether the value fits.
        text: the description of fitting values, as in "expected at most 2"; the test's name if empty.
    """

    test: Callable[[Any], object]
    text: str = ""

    def __call__(self, value: Any) -> bool:
        """Return whether a value fits."""
        return bool(self.test(value))

    def __str__(self) -> str:
        name = getattr(self.test, "__name__", "<lambda>")
        test = "the pattern's test" if name == "<lambda>" else f"`{name}`"
        return self.text or f"a value accepted by {test}"


class Condition(ABC):
    """A condition of a pattern on a value. ``str`` returns the wanted property, as a noun."""

    __slots__ = ()

    def holds(self, value: Value, index: FunctionIndex) -> bool:
        """Return whether a value fulfils the condition."""
        return self._holds(value, index)

    def misfit(self, value: Value, index: FunctionIndex) -> str:
        """Return the fault of a value not fulfilling the condition, as the clause after the value's name."""
        return self._misfit(value, index)

    @abstractmethod
    def _holds(self, value: Value, index: FunctionIndex) -> bool: ...

    @abstractmethod
    def _misfit(self, value: Value, index: FunctionIndex) -> str: ...


@dataclass(frozen=True, slots=True)
class HasDtype(Condition):
    """The value is a tensor of one of these dtypes."""

    dtypes: tuple[str, ...]

    def _holds(self, value: Value, index: FunctionIndex) -> bool:
        return isinstance(value.type, TensorType) and value.type.dtype in self.dtypes

    def _misfit(self, value: Value, index: FunctionIndex) -> str:
        if not isinstance(value.type, TensorType):
            return f"is {value.type}, expected a tensor of {self}"
        return f"is of dtype {value.type.dtype}, expected {listed(self.dtypes)}"

    def __str__(self) -> str:
        return f"dtype {listed(self.dtypes)}"


@dataclass(frozen=True, slots=True)
class HasRank(Condition):
    """The value is a tensor with one of these numbers of axes."""

    ranks: tuple[int, ...]

    def _holds(self, value: Value, index: FunctionIndex) -> bool:
        return isinstance(value.type, TensorType) and value.type.rank in self.ranks

    def _misfit(self, value: Value, index: FunctionIndex) -> str:
        if not isinstance(value.type, TensorType):
            return f"is {value.type}, expected a tensor of {self}"
        rank = "unknown rank" if value.type.rank is None else f"rank {value.type.rank}"
        return f"is of {rank}, expected {listed(self.ranks)}"

    def __str__(self) -> str:
        return f"rank {listed(self.ranks)}"


@dataclass(frozen=True, slots=True)
class HasShape(Condition):
    """The value is a tensor of this shape.

    Attributes:
        shape: for each axis a size, ``None`` for any size, or a name for any size; equal names stand for equal sizes.
    """

    shape: tuple[Dim | str | None, ...]

    def _holds(self, value: Value, index: FunctionIndex) -> bool:
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        if shape is None or len(shape) != len(self.shape):
            return False
        named: dict[str, Dim] = {}
        return all(
            expected is None
            or actual == (named.setdefault(expected, actual) if isinstance(expected, str) else expected)
            for expected, actual in zip(self.shape, shape, strict=True)
        )

    def _misfit(self, value: Value, index: FunctionIndex) -> str:
        if not isinstance(value.type, TensorType):
            return f"is {value.type}, expected a tensor of {self}"
        shape = "unknown rank" if value.type.shape is None else f"shape ({', '.join(map(str, value.type.shape))})"
        return f"is of {shape}, expected {self}"

    def __str__(self) -> str:
        return f"shape ({', '.join('*' if size is None else str(size) for size in self.shape)})"


@dataclass(frozen=True, eq=False, slots=True)
class HoldsArray(Condition):
    """The value is a constant with a number everywhere, or with these elements.

    Floats are compared after rounding to the constant's dtype; NaN equals NaN, and signs of zeros do not count.
    Cost: the constant's size if the first element fits, else none.

    Attributes:
        array: a number (0-d), or all elements.
    """

    array: npt.NDArray[Any]

    def _holds(self, value: Value, index: FunctionIndex) -> bool:
        actual = index.array(value)
        if actual is None or actual.size == 0 or (self.array.ndim and self.array.shape != actual.shape):
            return False
        return _agree(actual.flat[:1], self.array.flat[:1]) and _agree(actual, self.array)

    def _misfit(self, value: Value, index: FunctionIndex) -> str:
        actual = index.array(value)
        if actual is None or actual.size != 1:
            return f"is not {self}"
        return f"holds {actual.item()}, expected {self}"

    def __str__(self) -> str:
        return f"the constant {self.array.item()}" if self.array.ndim == 0 else f"the constant {self.array.tolist()}"


def _agree(actual: npt.NDArray[Any], expected: npt.NDArray[Any]) -> bool:
    if not is_float(dtype_name(actual.dtype)):
        return bool(np.all(actual.astype(np.int8) == expected if actual.dtype.kind == "V" else actual == expected))
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = expected.astype(actual.dtype).astype(np.float64)
    exact = actual.astype(np.float64)
    return bool(np.all((exact == rounded) | (np.isnan(exact) & np.isnan(rounded))))


@dataclass(frozen=True, eq=False, slots=True)
class Where(Condition):
    """A user-defined test."""

    predicate: Predicate

    def _holds(self, value: Value, index: FunctionIndex) -> bool:
        return self.predicate(value)

    def _misfit(self, value: Value, index: FunctionIndex) -> str:
        return f"is not {self}"

    def __str__(self) -> str:
        return str(self.predicate)
