"""A backend's options: checked against its pydantic model before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, get_args

from byoc_core.errors import OptionsError, near_names

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["path_options", "validate_options"]


def path_options(model: type[BaseModel] | None) -> frozenset[str]:
    """Return the options that are paths: facts of one machine, which no artifact records."""
    fields = {} if model is None else model.model_fields
    return frozenset(field.alias or name for name, field in fields.items() if _holds_path(field.annotation))


def _holds_path(annotation: object) -> bool:
    is_path = isinstance(annotation, type) and issubclass(annotation, PurePath)
    return is_path or any(map(_holds_path, get_args(annotation)))


def validate_options(backend: str, model: type[BaseModel] | None, given: Mapping[str, object]) -> BaseModel | None:
    """Gives the options with defaults filled in; ``None`` where the backend has none.

    Text is converted where the field's type permits (``"3"`` to 3), so options may come from a command line.

    Args:
        backend: the backend's name, for messages.
        model: its options model.
        given: what the user chose.

    Raises:
        OptionsError: an option is unknown (whatever the model itself says about extra keys) or has a bad value.
    """
    known = [] if model is None else [field.alias or name for name, field in model.model_fields.items()]
    for name in given:
        if name not in known:
            raise OptionsError(
                f"options.{backend}.{name}",
                "is unknown",
                expected=", ".join(known) or "no option at all",
                hint=near_names(name, known) or None,
            )
    if model is None:
        return None
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = ".".join(map(str, first["loc"]))
        raise OptionsError(
            ".".join(filter(None, ("options", backend, option))),
            "has a bad value" if option else "do not fit together",
            got=repr(first["input"]) if option else None,
            hint=f"{first['msg']}.",
        ) from error
