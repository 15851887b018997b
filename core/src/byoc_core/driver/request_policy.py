"""Policies in requests: objects in Python; in files a name, alone or in a table with fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter

from byoc_core.driver.references import object_name
from byoc_core.driver.request_errors import read_table
from byoc_core.errors import OptionsError, near_names
from byoc_core.partitioning.policies import FILE_POLICIES, Policy

__all__ = ["policy_from_data", "policy_schema", "policy_to_data"]

_NAMES = tuple(FILE_POLICIES)


def policy_from_data(data: object) -> Policy:
    """Return the policy named in a file.

    Raises:
        OptionsError: the name is unknown, or the fields do not fit.
    """
    name, settings = (data.get("name"), data) if isinstance(data, Mapping) else (data, {})
    if not isinstance(name, str) or name not in FILE_POLICIES:
        hint = near_names(name, _NAMES) or None if isinstance(name, str) else None
        where = "policy.name" if isinstance(data, Mapping) else "policy"
        raise OptionsError(where, "is not a policy", got=repr(name), expected=" or ".join(_NAMES), hint=hint)
    table = {key: value for key, value in settings.items() if key != "name"}
    policy: Policy = read_table(FILE_POLICIES[name], "policy", table, ", ")
    return policy


def policy_to_data(policy: object) -> str | dict[str, Any]:
    """Return a policy in the form of files; a policy of an unknown class only by the class's name."""
    name = next((name for name, kind in FILE_POLICIES.items() if type(policy) is kind), None)
    if name is None:
        return object_name(policy)
    default = FILE_POLICIES[name]()
    settings = {field.name: getattr(policy, field.name) for field in fields(policy)}  # type: ignore[arg-type]
    changed = {key: _plain(value) for key, value in settings.items() if value != getattr(default, key)}
    return {"name": name, **changed} if changed else name


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def policy_schema() -> dict[str, Any]:
    """Return the JSON schema of policies in files."""
    tables = [
        {**schema, "properties": {"name": {"const": name}, **schema.get("properties", {})}, "required": ["name"]}
        for name, kind in FILE_POLICIES.items()
        for schema in [_schema(kind)]
    ]
    return {"anyOf": [{"enum": list(_NAMES)}, *tables, {"type": "null"}]}


def _schema(kind: Any) -> dict[str, Any]:
    schema = TypeAdapter(kind).json_schema()
    inline = partial(_inline, MappingProxyType(schema.pop("$defs", {})))
    return {**inline(schema), "additionalProperties": False}


def _inline(definitions: Mapping[str, Any], schema: Any) -> Any:
    """Return a schema with definitions in place of references."""
    if isinstance(schema, list):
        return [_inline(definitions, item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline(definitions, definitions[schema["$ref"].rpartition("/")[2]])
    return {key: _inline(definitions, item) for key, item in schema.items()}
