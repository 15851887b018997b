"""Attributes of ops: kinds, and the canonical stored form of each value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from byoc_core.dims import Dim, DimExpr, parse_dim
from byoc_core.dtypes import dtype_info
from byoc_core.errors import IRTypeError

__all__ = ["REQUIRED", "AttrKind", "AttrSpec", "AttrValue"]

AttrValue = None | bool | int | float | str | DimExpr | tuple["AttrValue", ...]
"""The permitted values of an attribute. Lists are stored as tuples."""


class AttrKind(Enum):
    """The type of an attribute."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STR = "str"
    DTYPE = "dtype"
    INTS = "ints"
    FLOATS = "floats"
    STRS = "strs"
    DIM = "dim"
    DIMS = "dims"


class _Required(Enum):
    REQUIRED = "required"


REQUIRED: Final = _Required.REQUIRED
"""The default of an attribute without a default value."""


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """An attribute of an op.

    Attributes:
        name: keyword in script text and in kernels.
        kind: the type; ``INTS`` and the like are tuples.
        default: the value when left out, or ``REQUIRED``; a default of ``None`` also permits ``None``.
        choices: the permitted values; empty for all.
        doc: a sentence.
    """

    name: str
    kind: AttrKind
    default: AttrValue | _Required = REQUIRED
    choices: tuple[AttrValue, ...] = ()
    doc: str = ""

    def normalise(self, value: object) -> AttrValue:
        """Return the value in stored form (lists as tuples, text dims parsed).

        Raises:
            IRTypeError: the value is of another type, or is not among the choices.
        """
        if value is None and self.default is None:
            return None
        try:
            normal: AttrValue = _NORMALISE[self.kind](value)
        except (TypeError, ValueError, OverflowError) as error:
            raise IRTypeError(
                f"attribute `{self.name}`", "value of the wrong type", got=repr(value), expected=self.kind.value
            ) from error
        if self.choices and normal not in self.choices:
            raise IRTypeError(
                f"attribute `{self.name}`",
                "value not permitted",
                got=repr(value),
                expected=" or ".join(map(repr, self.choices)),
            )
        return normal


def _exact(type_: type) -> Callable[[object], Any]:
    def check(value: object) -> object:
        if type(value) is not type_:
            raise TypeError
        return value

    return check


def _to_int(value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError
    return int(value.__index__())


def _to_float(value: object) -> float:
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError
    return float(value)


def _to_dtype(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return dtype_info(value).name


def _to_dim(value: object) -> Dim:
    if isinstance(value, str | DimExpr):
        return parse_dim(value)
    return _to_int(value)


def _sequence(element: Callable[[object], Any]) -> Callable[[object], tuple[Any, ...]]:
    def convert(value: object) -> tuple[Any, ...]:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise TypeError
        return tuple(element(item) for item in value)

    return convert


_NORMALISE: Mapping[AttrKind, Callable[[object], Any]] = {
    AttrKind.BOOL: _exact(bool),
    AttrKind.INT: _to_int,
    AttrKind.FLOAT: _to_float,
    AttrKind.STR: _exact(str),
    AttrKind.DTYPE: _to_dtype,
    AttrKind.INTS: _sequence(_to_int),
    AttrKind.FLOATS: _sequence(_to_float),
    AttrKind.STRS: _sequence(_exact(str)),
    AttrKind.DIM: _to_dim,
    AttrKind.DIMS: _sequence(_to_dim),
}
