"""The options model: documented, strict, and consistent with the defaults."""

from __future__ import annotations

import math
from collections.abc import Iterator

from byoc_core.errors import OptionsError
from pydantic import BaseModel

from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_UNKNOWN = "no_such_option"
_ODD_VALUES: tuple[object, ...] = (
    None,
    "",
    "no such value",
    -1,
    0,
    10**30,
    0.5,
    math.nan,
    True,
    [],
    ["x"],
    {},
    {"x": 1},
)


def _require_model(subject: Subject) -> type[BaseModel]:
    if subject.info.options is None:
        raise NotCoveredError("the backend has no options")
    return subject.info.options


def _check_described(subject: Subject, case: str) -> None:
    model = _require_model(subject)
    missing = [f"`{where}`" for where, owner, name in _fields(model) if not owner.model_fields[name].description]
    if missing:
        raise FailedError(f"options without a description: {', '.join(missing)}")


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[BaseModel], str]]:
    """Yield the fields of a model and of nested models: the name written by users, the owning model, the field name."""
    for name, field in model.model_fields.items():
        where = prefix + (field.alias or name)
        yield where, model, name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{where}.")


def _check_defaults(subject: Subject, case: str) -> None:
    model = _require_model(subject)
    defaults = _values(model, subject.handle.options())
    for name, field in model.model_fields.items():
        option, value = field.alias or name, defaults[name]
        try:
            explicit = subject.handle.options({option: value})
        except OptionsError as error:
            raise FailedError(f"option `{option}` refuses the default {value!r}: {error}") from error
        if _values(model, explicit) != defaults:
            raise FailedError(f"setting option `{option}` to the default {value!r} changes the options to {explicit!r}")


def _values(model: type[BaseModel], options: BaseModel | None) -> dict[str, object]:
    return {name: getattr(options, name) for name in model.model_fields}


def _check_unknown_keys(subject: Subject, case: str) -> None:
    model = _require_model(subject)
    groups = [("", model)]
    for where, owner, name in _fields(model):
        inner = owner.model_fields[name].annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            groups.append((where, inner))
    for where, inner in groups:
        settings: dict[str, object] = {_UNKNOWN: 1}
        for part in reversed(where.split(".") if where else []):
            settings = {part: settings}
        if inner.model_config.get("extra") == "allow" and where:
            continue  # the model accepts keys of any name
        try:
            subject.handle.options(settings)
        except OptionsError:
            continue
        accepting = f"option `{where}` accepts and ignores" if where else "the options accept and ignore"
        raise FailedError(f"{accepting} the unknown key `{_UNKNOWN}`; forbid extra keys")


def _check_bad_values(subject: Subject, case: str) -> None:
    model = _require_model(subject)
    for name, field in model.model_fields.items():
        for value in _ODD_VALUES:
            try:
                subject.handle.options({field.alias or name: value})
            except OptionsError:
                continue
            except Exception as error:
                raised = f"{type(error).__name__}: {error}"
                text = f"option `{field.alias or name}` set to {value!r} raised {raised}, expected an OptionsError"
                raise FailedError(f"{text}: a validator may raise ValueError only") from error


PROMISES = (
    Promise(Level.L0, "options-described", "has a description for each option", _check_described),
    Promise(Level.L0, "options-defaults", "accepts the default of each option as an explicit value", _check_defaults),
    Promise(Level.L0, "options-unknown-keys", "refuses unknown options", _check_unknown_keys),
    Promise(
        Level.L0, "options-bad-values", "accepts a value of an option or raises an `OptionsError`", _check_bad_values
    ),
)
