"""A measured op: the row of the database, checked, merged and exported."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from typing import Any, Self

from byoc_core.errors import ArtifactError

__all__ = ["EXPORT_SCHEMA", "Measurement", "export_text", "merged", "read_text"]

EXPORT_SCHEMA = 1
"""Version of the form of exported measurements."""

_LONGEST_TEXT = 400
_LONGEST_S = 1e6
_MOST = 1 << 62
_ENOUGH_SAMPLES = 16
"""Beyond this number of samples, the date decides between two measurements."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measured op on a backend.

    Attributes:
        processor: see :func:`byoc_core.measurements.machine.processor_text`.
        threads: of the call.
        backend: the name.
        version: distribution and version of the backend, if installed, and a digest of its estimates.
        options: a digest of the backend's options; empty for defaults.
        schedule: the schedule of the kernel, as text of the backend; empty by default.
        key: see :func:`byoc_core.measurements.keys.op_key`.
        op: the op with most work.
        family: see :func:`byoc_core.measurements.keys.op_family`.
        flops: operations.
        nbytes: bytes read and written.
        estimated: the seconds estimated by the backend, 0 if unknown.
        seconds: measured; 0 for an op computed along with a neighbour.
        samples: the number of measurements behind the seconds.
        date: of the measurement, as ``YYYY-MM-DD``.
    """

    processor: str
    threads: int
    backend: str
    version: str
    options: str
    schedule: str
    key: str
    op: str
    family: str
    flops: int
    nbytes: int
    estimated: float
    seconds: float
    samples: int
    date: str

    @property
    def identity(self) -> tuple[str, int, str, str, str, str, str]:
        """The measured thing: equal for measurements of one op in one setting."""
        return self.processor, self.threads, self.backend, self.version, self.options, self.schedule, self.key

    @property
    def _support(self) -> tuple[Any, ...]:
        rest = (self.op, self.family, self.flops, self.nbytes, self.estimated)
        return min(self.samples, _ENOUGH_SAMPLES), self.date, self.samples, -self.seconds, *rest

    @classmethod
    def read(cls, values: object) -> Self | None:
        """Return the measurement of plain values in the order of the fields; ``None`` if a value does not fit.

        The values may come from anywhere.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(values, list | tuple) or len(values) != len(names):
            return None
        if not all(_CHECKS.get(name, _is_text)(value) for name, value in zip(names, values, strict=True)):
            return None
        return cls(*values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_TEXT


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_positive(value: Any) -> bool:
    return _is_count(value) and value > 0


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= _LONGEST_S


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "threads": _is_positive,
    "flops": _is_count,
    "nbytes": _is_count,
    "estimated": _is_time,
    "seconds": _is_time,
    "samples": _is_positive,
    "date": lambda value: isinstance(value, str) and _DATE.fullmatch(value) is not None,
}


def merged(*sources: Iterable[Measurement]) -> list[Measurement]:
    """Return a measurement for each op and setting: with more samples, of a later date, and shorter, in this order.

    Neither the order of the sources counts nor a repetition.
    """
    best: dict[tuple[str, int, str, str, str, str, str], Measurement] = {}
    for source in sources:
        for row in source:
            present = best.get(row.identity)
            if present is None or row._support > present._support:
                best[row.identity] = row
    return [best[identity] for identity in sorted(best)]


def export_text(rows: Iterable[Measurement]) -> str:
    """Return measurements as JSON text, a line each."""
    names = [field.name for field in fields(Measurement)]
    lines = ",\n".join(json.dumps(astuple(row), allow_nan=False) for row in rows)
    return f'{{"schema": {EXPORT_SCHEMA},\n"fields": {json.dumps(names)},\n"rows": [\n{lines}\n]}}\n'


def read_text(text: str | bytes, where: str) -> tuple[list[Measurement], int]:
    """Return the measurements of JSON text, and the number of rows left out because a value does not fit.

    Args:
        text: written by :func:`export_text`; may come from anywhere.
        where: the place of the text, for messages.

    Raises:
        ArtifactError: the text holds no measurements of this version.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(where, f"is malformed JSON: {type(error).__name__}") from error
    names = [field.name for field in fields(Measurement)]
    if not isinstance(data, dict) or data.get("schema") != EXPORT_SCHEMA or data.get("fields") != names:
        expected = f"schema {EXPORT_SCHEMA}, as written by `byoc measurements export`"
        raise ArtifactError(where, "holds no measurements of this version", expected=expected)
    rows = data.get("rows")
    if not isinstance(rows, list):
        raise ArtifactError(f"{where}, `rows`", "is not a list", got=type(rows).__name__)
    found = [row for row in map(Measurement.read, rows) if row is not None]
    return found, len(rows) - len(found)
