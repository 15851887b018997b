"""Reading of ``conformance.json``."""

from __future__ import annotations

import json
from pathlib import Path

from byoc_core.errors import OptionsError
from pydantic import ValidationError

from byoc_conformance.report.model import SCHEMA_VERSION, Report

__all__ = ["read_report"]


def read_report(path: Path) -> Report:
    """Return the report of a file.

    Raises:
        OptionsError: the file is no report, or a report of a newer kit.
        OSError: the file cannot be read.
    """
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is a ValueError; the other: nested too deep
        raise OptionsError(f"{path}", f"is no JSON file: {error}") from error
    schema_version = values.get("schema_version") if isinstance(values, dict) else None
    if isinstance(schema_version, int) and schema_version > SCHEMA_VERSION:
        raise OptionsError(
            f"{path}",
            "is a report of a newer kit",
            got=f"schema version {schema_version}",
            expected=f"{SCHEMA_VERSION} at most",
            hint="pip install --upgrade byoc-conformance",
        )
    try:
        return Report.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"])) or "the whole"
        raise OptionsError(f"{path}", f"is no conformance report: {location}: {first['msg']}") from error
