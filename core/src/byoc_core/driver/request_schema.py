"""The JSON schema of requests: each field with its description from the class's docstring.

``byoc config --schema`` prints the schema. Request files are read by pydantic and :attr:`ObjectField.check`, not by the
schema, so each ``check`` and ``schema`` of a field must agree.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, PlainValidator, ValidationInfo

from byoc_core.driver.stages import INSERTION_POINTS

__all__ = ["ObjectField", "describe_fields", "names_schema", "passes_schema"]


@dataclass(frozen=True)
class ObjectField:
    """The pydantic validation and description of a field with objects in Python and names in files.

    Attributes:
        check: returns the value of the field, or raises.
        schema: returns the JSON schema of the form in files.
    """

    check: Callable[[Any, ValidationInfo], Any]
    schema: Callable[[], dict[str, Any]]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> Any:
        return PlainValidator(self.check).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: object, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self.schema()


def names_schema() -> dict[str, Any]:
    """Return the schema of a list of names."""
    return {"type": "array", "items": {"type": "string"}}


def passes_schema() -> dict[str, Any]:
    """Return the schema of passes by stage."""
    items = {"type": "array", "items": {"type": "string", "pattern": "^.+:.+$"}}
    return {"type": "object", "properties": {stage.value: items for stage in INSERTION_POINTS}}


def describe_fields(schema: dict[str, Any], model: type, names: dict[str, str]) -> None:
    """Put the texts of a class's ``Attributes:`` into its schema, as descriptions of the properties.

    Args:
        schema: the schema of the class; modified in place.
        model: the class.
        names: the name in files of each attribute with a different name there.
    """
    summary, _, attributes = inspect.cleandoc(model.__doc__ or "").partition("\nAttributes:\n")
    schema["description"] = summary.strip()
    for name, text in re.findall(r"^    (\w+): (.+(?:\n {8}.*|\n(?=\n))*)", attributes, re.MULTILINE):
        schema["properties"][names.get(name, name)]["description"] = re.sub(r"\s+", " ", text).strip()
