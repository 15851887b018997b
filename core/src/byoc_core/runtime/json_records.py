"""Records from untrusted JSON values: every field is declared, and nothing is converted.

A *reader* takes a JSON value and returns the meaning, or raises :class:`MisfitError`. Readers are composed::

    read_point = record(Point, name=text(max_length=80), shape=shape_of())
    read_point({"name": "a", "shape": [1, "2*n"]})

Cost: a few hundred nanoseconds for each value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, Generic, TypeVar

from byoc_core.dims import Dim, DimExpr, read_dim
from byoc_core.dtypes import dtype_info
from byoc_core.errors import IRTypeError

__all__ = [
    "DIM",
    "DTYPE",
    "SIZE",
    "MisfitError",
    "OptionalField",
    "Reader",
    "any_json",
    "flag",
    "integer",
    "list_of",
    "mapping_of",
    "one_of",
    "parse_json",
    "record",
    "shape_of",
    "text",
    "to_json",
]

T = TypeVar("T")
K = TypeVar("K")
Reader = Callable[[Any], T]

_MAX_SIZE = 2**63 - 1
_MAX_DEPTH = 200
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class MisfitError(ValueError):
    """A JSON value refused by a reader; the text names the location, by keys and indexes, and the reason."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: tuple[str | int, ...] = ()

    def inside(self, key: str | int) -> MisfitError:
        """Return the same misfit with the key or index of the value in the container."""
        self.path = (key, *self.path)
        return self

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path)) or 'document'}: {self.problem}"


def parse_json(data: bytes, make_object: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the values of JSON text.

    Args:
        data: the text.
        make_object: returns the value of an object from its names and values, in the order of the text; by default a
            dictionary, with the last value of a repeated name.

    Raises:
        ValueError: the bytes are no JSON text in UTF-8, or are nested too deep; or contain NaN, an infinity, or half of
            a surrogate pair (not encodable in UTF-8).
    """
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant, object_pairs_hook=make_object)
        if _SURROGATE.search(data) is not None:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("is nested too deep") from error
    return value


@dataclass(frozen=True, slots=True)
class OptionalField(Generic[T]):
    """A reader of an optional field; a missing field takes the record's default. A default ``None`` is not written."""

    read: Reader[T]

    def __call__(self, value: Any) -> T:
        """Read the value of a present field."""
        return self.read(value)


def record(make: Callable[..., T], /, **fields: Reader[Any]) -> Reader[T]:
    """Return a reader of an object with exactly these fields; the reader passes their values to ``make``."""

    def read(value: Any) -> T:
        if type(value) is not dict:
            raise MisfitError("An object is required")
        content = {}
        for name, read_field in fields.items():
            if name not in value:
                if isinstance(read_field, OptionalField):
                    continue
                raise MisfitError("The field is required").inside(name)
            try:
                content[name] = read_field(value[name])
            except MisfitError as misfit:
                raise misfit.inside(name) from None
        if len(value) != len(content):
            raise MisfitError("Extra inputs are not permitted").inside(min(value.keys() - fields.keys()))
        return make(**content)

    return read


def list_of(read: Reader[T], *, max_length: int | None = None) -> Reader[tuple[T, ...]]:
    """Return a reader of a list, as a tuple."""

    def read_list(value: Any) -> tuple[T, ...]:
        if type(value) is not list:
            raise MisfitError("A list is required")
        if max_length is not None and len(value) > max_length:
            raise MisfitError(f"A list of at most {max_length} items is required")
        items: list[T] = []
        for index, item in enumerate(value):
            try:
                items.append(read(item))
            except MisfitError as misfit:
                raise misfit.inside(index) from None
        return tuple(items)

    return read_list


def mapping_of(read_key: Reader[K], read: Reader[T]) -> Reader[Mapping[K, T]]:
    """Return a reader of an object whose keys are not known beforehand."""

    def read_mapping(value: Any) -> Mapping[K, T]:
        if type(value) is not dict:
            raise MisfitError("An object is required")
        items: dict[K, T] = {}
        for key, item in value.items():
            try:
                items[read_key(key)] = read(item)
            except MisfitError as misfit:
                raise misfit.inside(key) from None
        return items

    return read_mapping


def text(pattern: str = "", *, min_length: int = 0, max_length: int | None = None) -> Reader[str]:
    """Return a reader of a text of limited length; a regular expression, if given, matches the whole text."""
    matches = re.compile(pattern).fullmatch if pattern else None

    def read_text(value: Any) -> str:
        if type(value) is not str:
            raise MisfitError("A text is required")
        if matches is not None and matches(value) is None:
            raise MisfitError(f"A text of the form {pattern} is required")
        if len(value) < min_length or (max_length is not None and len(value) > max_length):
            raise MisfitError(f"A text of {min_length} to {max_length} characters is required")
        return value

    return read_text


def integer(low: int, high: int | None = None) -> Reader[int]:
    """Return a reader of an integer from ``low`` to ``high``."""

    def read_integer(value: Any) -> int:
        if type(value) is not int:
            raise MisfitError("An integer is required")
        if value < low or (high is not None and value > high):
            limits = f"of {low} or more" if high is None else f"from {low} to {high}"
            raise MisfitError(f"An integer {limits} is required")
        return value

    return read_integer


def flag(value: Any) -> bool:
    """Read ``true`` or ``false``."""
    if type(value) is not bool:
        raise MisfitError("A boolean is required")
    return value


def one_of(*choices: int | str) -> Reader[Any]:
    """Return a reader of a value among several choices."""
    permitted = " or ".join(map(repr, choices))

    def read_choice(value: Any) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise MisfitError(f"The value {permitted} is required")
        return value

    return read_choice


def any_json(value: Any) -> dict[str, Any]:
    """Read an object of any content, with nesting limited for the sake of recursive readers."""
    if type(value) is not dict:
        raise MisfitError("An object is required")
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) in (dict, list)
        ]
        if not level:
            return value
    raise MisfitError("nested too deep")


def shape_of(*, max_rank: int | None = None) -> Reader[tuple[Dim, ...]]:
    """Return a reader of a shape: integers, and expressions as text."""
    read_items = list_of(_read_size, max_length=max_rank)

    def read_shape(value: Any) -> tuple[Dim, ...]:
        sizes = read_items(value)
        try:
            return tuple([size if type(size) is int else _read_expression(str(size)) for size in sizes])
        except IRTypeError as error:
            raise MisfitError(f"Value error, {error.problem}") from error

    return read_shape


def to_json(value: object) -> Any:
    """Return a record as an object, or a size as text: the ``default`` of ``json.dumps``.

    Raises:
        TypeError: the value is neither.
    """
    if isinstance(value, DimExpr):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        content = {field.name: getattr(value, field.name) for field in dataclass_fields(value)}
        return {name: item for name, item in content.items() if item is not None}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def _read_size(value: Any) -> int | str:
    return value if type(value) is str else SIZE(value)


def _read_dim(value: Any) -> Dim:
    (dim,) = _read_dims([value])
    return dim


def _read_expression(text: str) -> DimExpr:
    dim = read_dim(text)
    if not isinstance(dim, DimExpr):
        raise IRTypeError("dim", f"the size {text[:40]!r} is a number in text form")
    return dim


def _read_dtype(value: Any) -> str:
    try:
        return dtype_info(_read_text(value)).name
    except IRTypeError as error:
        raise MisfitError(f"Value error, {error.problem}") from error


_read_text = text()
SIZE: Reader[int] = integer(0, _MAX_SIZE)
"""Reads the size of an axis."""
DTYPE: Reader[str] = _read_dtype
"""Reads the name of a dtype."""
_read_dims = shape_of()
DIM: Reader[Dim] = _read_dim
"""Reads a size: an integer, or an expression as text."""
