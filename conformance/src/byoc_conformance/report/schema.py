"""The JSON schema of ``conformance.json``, as contained in the wheel."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from byoc_conformance.report.model import SCHEMA_VERSION, Report

__all__ = ["SCHEMA_FILE", "new_schema", "read_schema"]

SCHEMA_FILE = "conformance.schema.json"


def read_schema() -> dict[str, Any]:
    """Return the schema contained in the wheel."""
    schema: dict[str, Any] = json.loads((resources.files(__package__) / SCHEMA_FILE).read_text(encoding="utf-8"))
    return schema


def new_schema() -> dict[str, Any]:
    """Return the schema of the model."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    title = f"byoc conformance report, schema version {SCHEMA_VERSION}"
    return {"$schema": dialect} | Report.model_json_schema(mode="serialization") | {"title": title}


if __name__ == "__main__":
    Path(__file__).with_name(SCHEMA_FILE).write_text(json.dumps(new_schema(), indent=2) + "\n", encoding="utf-8")
