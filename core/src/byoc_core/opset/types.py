"""Types of IR values: tensors with symbolic shapes, and opaque host objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np

from byoc_core.dims import Dim, DimExpr, parse_dim, product, substitute
from byoc_core.dtypes import dtype_info, dtype_name
from byoc_core.errors import IRTypeError, type_name

__all__ = ["MAX_ARRAY_NBYTES", "ObjectType", "TensorType", "Type", "is_static", "quoted", "tensor"]


_NO_SYMBOLS: frozenset[str] = frozenset()
_STORED_SIZES = frozenset((int, DimExpr))
MAX_ARRAY_NBYTES = 2**63 - 1
"""The most bytes of an array: numpy and C count bytes in signed 64 bits."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor.

    Equal types have equal fields: a shape is stored as a tuple of plain ints and expressions, a dtype by name.
    Other spellings (a list, numpy's integers, text such as ``"2*n"``, a numpy dtype) are brought to this form.

    Attributes:
        shape: a dimension per axis, or ``None`` if even the rank is unknown.
        dtype: element type by name.

    Raises:
        IRTypeError: a size or the dtype has the wrong type, or a size is negative.
    """

    shape: tuple[Dim, ...] | None
    dtype: str

    def __post_init__(self) -> None:
        if type(self.dtype) is not str:
            object.__setattr__(self, "dtype", _stored_dtype(self.dtype))
        dtype_info(self.dtype)
        if self.shape is None:
            return
        if not _is_stored(self.shape):
            object.__setattr__(self, "shape", _stored_shape(self.shape))
        for dim in self.shape:
            if isinstance(dim, int) and dim < 0:
                raise IRTypeError("tensor type", f"axis {self.shape.index(dim)} has a negative size", got=dim)

    @property
    def rank(self) -> int | None:
        """The number of axes, or ``None`` if unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def num_elements(self) -> Dim | None:
        """The product of all sizes, or ``None`` if the rank is unknown."""
        return None if self.shape is None else product(self.shape)

    @property
    def nbytes(self) -> Dim | None:
        """The bytes of a contiguous tensor of this type, or ``None`` if the rank is unknown."""
        return None if self.shape is None else product(self.shape) * dtype_info(self.dtype).itemsize

    @property
    def oversized_axis(self) -> int | None:
        """The first axis at which the sizes so far exceed the largest array; ``None`` if arrays of this type may exist.

        A size of 0 and a symbol count as 1, like zero sizes in numpy, which refuses ``(0, 2**62, 2**62)``.
        """
        nbytes = dtype_info(self.dtype).itemsize
        for axis, dim in enumerate(self.shape or ()):
            nbytes *= max(dim, 1) if isinstance(dim, int) else 1
            if nbytes > MAX_ARRAY_NBYTES:
                return axis
        return None

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols in the shape."""
        found: frozenset[str] = _NO_SYMBOLS
        for dim in self.shape or ():
            if not isinstance(dim, int):
                found = found | dim.symbols if found else dim.symbols
        return found

    def substitute(self, values: Mapping[str, Dim]) -> TensorType:
        """Replace symbols in the shape."""
        if self.shape is None or not self.symbols:
            return self
        return TensorType(tuple(substitute(dim, values) for dim in self.shape), self.dtype)

    def __str__(self) -> str:
        if self.shape is None:
            return f'R.Tensor(None, "{self.dtype}")'
        dims = ", ".join(str(dim) if isinstance(dim, int) else f'"{dim}"' for dim in self.shape)
        return f'R.Tensor(({dims}{"," if len(self.shape) == 1 else ""}), "{self.dtype}")'


def _is_stored(shape: object) -> bool:
    return type(shape) is tuple and _STORED_SIZES.issuperset(map(type, shape))


def _stored_shape(shape: object) -> tuple[Dim, ...]:
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise IRTypeError("tensor type", "the shape is not a sequence of sizes", got=f"{shape!r} ({type_name(shape)})")
    return tuple(_stored_dim(axis, dim) for axis, dim in enumerate(shape))


def _stored_dim(axis: int, dim: object) -> Dim:
    if isinstance(dim, str | DimExpr):
        return parse_dim(dim)
    if isinstance(dim, SupportsIndex) and not isinstance(dim, bool):
        try:
            return int(dim.__index__())
        except TypeError:  # an array other than a single integer
            pass
    raise IRTypeError(
        "tensor type",
        f"axis {axis} has no size",
        got=f"{dim!r} ({type_name(dim)})",
        expected="an integer or an expression over symbols",
    )


def _stored_dtype(dtype: object) -> str:
    if isinstance(dtype, str):
        return str.__str__(dtype)
    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        return dtype_name(dtype)
    raise IRTypeError(
        "tensor type",
        "the dtype has the wrong type",
        got=f"{dtype!r} ({type_name(dtype)})",
        expected="the name of a dtype",
    )


@dataclass(frozen=True, slots=True)
class ObjectType:
    """An opaque value understood only by the host (a sequence, an optional, a string)."""

    kind: str

    def __str__(self) -> str:
        return f"R.Object({quoted(self.kind)})"


Type = TensorType | ObjectType
"""The type of a value."""


def tensor(shape: Iterable[int | str | Dim] | None, dtype: str = "float32") -> TensorType:
    """Return a tensor type; sizes may be ints, expressions or text such as ``"n"`` and ``"2*n"``."""
    return TensorType(None if shape is None else tuple(parse_dim(dim) for dim in shape), dtype)


def quoted(text: str) -> str:
    """Return text as a Python string literal, in double quotes if nothing needs an escape."""
    return f'"{text}"' if text.isprintable() and not set(text) & {'"', "\\"} else repr(text)


def is_static(type_: Type) -> bool:
    """Return whether a type is a tensor with known integer sizes."""
    return isinstance(type_, TensorType) and type_.shape is not None and not type_.symbols
