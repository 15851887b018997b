"""Errors in requests, with the path of the place: conversion of pydantic's errors to byoc's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from byoc_core.errors import OptionsError, near_names

__all__ = ["read_table", "under_path"]

_STRICT = ConfigDict(extra="forbid", strict=True)

_PROBLEMS = {
    "bool_type": "is not a bool",
    "dataclass_type": "is not a table",
    "float_type": "is not a number",
    "int_type": "is not an integer",
    "mapping_type": "is not a table",
    "dict_type": "is not a table",
    "model_type": "is not a table",
    "list_type": "is not a list",
    "missing": "is missing",
    "string_type": "is not a string",
}
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


@contextmanager
def under_path(prefix: str, model: type) -> Iterator[None]:
    """Raise validation errors of the body as ``OptionsError``, with the place below a path.

    Args:
        prefix: the path of the whole; may be empty.
        model: the validated class: a pydantic model or a dataclass. For an unknown field, the class's fields are
            listed.

    Raises:
        OptionsError: a value does not fit.
    """
    try:
        yield
    except ValidationError as error:
        raise _translate(dict(error.errors(include_url=False)[0]), prefix, model) from error
    except OptionsError as error:
        if not prefix:
            raise
        raise _moved(error, prefix) from error


def read_table(kind: Any, path: str, table: object, joint: str) -> Any:
    """Return the dataclass described by a table of a file.

    Args:
        kind: the dataclass.
        path: the path of the table.
        table: the table.
        joint: stands between the path and the place named by the dataclass's own checks.

    Raises:
        OptionsError: a field is unknown or does not fit; names the path.
    """
    fields: dict[str, Any] = {path: (kind, ...)}
    holder = create_model("Holder", __config__=_STRICT, **fields)
    try:
        return getattr(holder.model_validate_json(json.dumps({path: table}, default=str)), path)
    except ValidationError as error:
        raise _translate(dict(error.errors(include_url=False)[0]), "", holder) from error
    except OptionsError as error:
        raise _moved(error, f"{path}{joint}") from error


def _moved(error: OptionsError, prefix: str) -> OptionsError:
    where = f"{prefix}{error.where}"
    return OptionsError(where, error.problem, got=error.got, expected=error.expected, hint=error.hint)


def _translate(error: Mapping[str, Any], prefix: str, model: type) -> OptionsError:
    path = error["loc"]
    where = f"{prefix}{_text(path)}"
    if error["type"] in _UNKNOWN:
        field_names = _names(_class_at(model, path[:-1]))
        hint = near_names(str(path[-1]), field_names) or None
        return OptionsError(where, "is unknown", expected=", ".join(field_names), hint=hint)
    problem = _PROBLEMS.get(error["type"])
    got = None if error["type"] == "missing" else _shown(error["input"])
    if problem is None:
        return OptionsError(where or "request", "has a bad value", got=got, hint=f"{error['msg']}.")
    return OptionsError(where or "request", problem, got=got)


def _text(path: Sequence[str | int]) -> str:
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return parts.removeprefix(".")


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _names(model: object) -> list[str]:
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [str(field.validation_alias or name) for name, field in model.model_fields.items()]
    if isinstance(model, type) and is_dataclass(model):
        return list(model.__dataclass_fields__)
    return []


def _class_at(model: object, path: Sequence[str | int]) -> object:
    """Return the class of the object at a path below an object of a class."""
    for part in path:
        if isinstance(model, type) and issubclass(model, BaseModel):
            fields = {
                str(field.validation_alias or name): field.annotation for name, field in model.model_fields.items()
            }
            model = fields.get(str(part))
        elif isinstance(model, type) and is_dataclass(model):
            model = get_type_hints(model).get(str(part))
        else:
            model = _item_type(model)
    return model


def _item_type(annotation: Any) -> Any:
    arguments = get_args(annotation)
    return arguments[-1] if arguments and not isinstance(annotation, Mapping) else None
