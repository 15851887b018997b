"""Validation of a backend's options against the pydantic model, before compilation starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, get_args

from byoc_core.errors import OptionsError, near_names

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["path_options", "validate_options"]


def path_options(model: type[BaseModel] | None) -> frozenset[str]:
    """Return the options holding paths. Paths are facts of one machine and not recorded in artifacts."""
    fields = {} if model is None else model.model_fields
    return frozenset(field.alias or name for name, field in fields.items() if _holds_path(field.annotation))


def _holds_path(annotation: object) -> bool:
    is_path = isinstance(annotation, type) and issubclass(annotation, PurePath)
    return is_path or any(map(_holds_path, get_args(annotation)))


def validate_options(backend: str, model: type[BaseModel] | None, values: Mapping[str, object]) -> BaseModel | None:
    """Return the options with defaults filled in; ``None`` for a backend without options.

    Text is converted if the field's type permits (``"3"`` to 3), so options may come from a command line.

    Args:
        backend: the backend's name, for messages.
        model: the backend's options model.
        values: the options chosen by the user.

    Raises:
        OptionsError: an option is unknown (whatever the model's policy on extra keys) or has a bad value.
    """
    option_names = [] if model is None else [field.alias or name for name, field in model.model_fields.items()]
    for name in values:
        if name not in option_names:
            raise OptionsError(
                f"options.{backend}.{name}",
                "is unknown",
                expected=", ".join(option_names) or "no option",
                hint=near_names(name, option_names) or None,
            )
    if model is None:
        return None
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = ".".join(map(str, first["loc"]))
        raise OptionsError(
            ".".join(filter(None, ("options", backend, option))),
            "has a bad value" if option else "do not fit together",
            got=repr(first["input"]) if option else None,
            hint=f"{first['msg']}.",
        ) from error
