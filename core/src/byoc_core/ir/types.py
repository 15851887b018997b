"""Types of IR values: tensors with symbolic shapes, and opaque host objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from byoc_core.dims import Dim, parse_dim, product, substitute, symbols_of
from byoc_core.dtypes import dtype_info
from byoc_core.errors import IRTypeError

__all__ = ["ObjectType", "TensorType", "Type", "is_static", "quoted", "tensor"]


_NO_SYMBOLS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor.

    Attributes:
        shape: one dimension per axis, or ``None`` where even the rank is unknown.
        dtype: element type by name.
    """

    shape: tuple[Dim, ...] | None
    dtype: str

    def __post_init__(self) -> None:
        dtype_info(self.dtype)
        for axis, dim in enumerate(self.shape or ()):
            if isinstance(dim, int) and dim < 0:
                raise IRTypeError("tensor type", f"axis {axis} has a negative size", got=dim)

    @property
    def rank(self) -> int | None:
        """The number of axes, or ``None`` where unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def num_elements(self) -> Dim | None:
        """The product of all sizes, or ``None`` where the rank is unknown."""
        return None if self.shape is None else product(self.shape)

    @property
    def nbytes(self) -> Dim | None:
        """The bytes of a contiguous tensor of this type, or ``None`` where the rank is unknown."""
        return None if self.shape is None else product(self.shape) * dtype_info(self.dtype).itemsize

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols in the shape."""
        found: frozenset[str] = _NO_SYMBOLS
        for dim in self.shape or ():
            if not isinstance(dim, int):
                found |= symbols_of(dim)
        return found

    def substitute(self, values: Mapping[str, Dim]) -> TensorType:
        """Replaces symbols in the shape."""
        if self.shape is None or not self.symbols:
            return self
        return TensorType(tuple(substitute(dim, values) for dim in self.shape), self.dtype)

    def __str__(self) -> str:
        if self.shape is None:
            return f'R.Tensor(None, "{self.dtype}")'
        dims = ", ".join(str(dim) if isinstance(dim, int) else f'"{dim}"' for dim in self.shape)
        return f'R.Tensor(({dims}{"," if len(self.shape) == 1 else ""}), "{self.dtype}")'


@dataclass(frozen=True, slots=True)
class ObjectType:
    """An opaque value that only the host understands (a sequence, an optional, a string)."""

    kind: str

    def __str__(self) -> str:
        return f"R.Object({quoted(self.kind)})"


Type = TensorType | ObjectType


def tensor(shape: Iterable[int | str | Dim] | None, dtype: str = "float32") -> TensorType:
    """Gives a tensor type; sizes may be ints, expressions or text such as ``"n"`` and ``"2*n"``."""
    return TensorType(None if shape is None else tuple(parse_dim(dim) for dim in shape), dtype)


def quoted(text: str) -> str:
    """Gives text as a Python string literal, in double quotes where nothing needs an escape."""
    return f'"{text}"' if text.isprintable() and not set(text) & {'"', "\\"} else repr(text)


def is_static(type_: Type) -> bool:
    """Tells whether a type is a tensor whose sizes are all known integers."""
    return isinstance(type_, TensorType) and type_.shape is not None and not type_.symbols
