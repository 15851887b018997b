"""Payloads of modules: lines with settings, stored plans, and the graph document.

The lines, each only if needed: ``precision=NAME``; ``schedules=JSON``; ``plans=NBYTES``, with as many bytes of stored
plans behind the line. The document is the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from byoc_core.errors import ArtifactError

from byoc_dnnl.precision import Precision
from byoc_dnnl.stored.grammar import check_text

__all__ = ["Payload", "join_payload", "split_payload"]

_PRECISION, _SCHEDULES, _PLANS = b"precision=", b"schedules=", b"plans="
_WHERE = "payload of byoc-dnnl"


@dataclass(frozen=True)
class Payload:
    """The parts of a payload.

    Attributes:
        document: the graph document as JSON.
        precision: the precision of float32 computations.
        schedules: the names of schedules chosen for nodes, by function and by the name of the result.
        plans: the text of stored plans; empty without plans.
    """

    document: bytes
    precision: Precision = "float32"
    schedules: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    plans: bytes = b""


def join_payload(payload: Payload) -> bytes:
    """Return the bytes of a payload."""
    lines = b""
    if payload.precision != "float32":
        lines += _PRECISION + payload.precision.encode() + b"\n"
    if payload.schedules:
        names = {function: dict(by_result) for function, by_result in payload.schedules.items()}
        lines += _SCHEDULES + json.dumps(names, sort_keys=True).encode() + b"\n"
    if payload.plans:
        lines += b"%s%d\n%s" % (_PLANS, len(payload.plans), payload.plans)
    return lines + payload.document


def split_payload(payload: bytes) -> Payload:
    """Return the parts of a payload; the document is not checked.

    Raises:
        ArtifactError: the payload names an unknown precision, or schedules or plans of another form.
    """
    precision: Precision = "float32"
    line, payload = _take_line(payload, _PRECISION)
    if line is not None:
        if line != b"bfloat16":
            got = line.decode(errors="replace")
            raise ArtifactError(_WHERE, "names an unknown precision", got=got, expected="bfloat16")
        precision = "bfloat16"
    line, payload = _take_line(payload, _SCHEDULES)
    schedules = {} if line is None else _read_schedules(line)
    line, payload = _take_line(payload, _PLANS)
    plans = b""
    if line is not None:
        if not line.isdigit() or len(line) > 19 or not 0 < int(line) <= len(payload):
            raise ArtifactError(_WHERE, "has stored plans of another length", got=line.decode(errors="replace"))
        plans, payload = payload[: int(line)], payload[int(line) :]
        check_text(plans)
    return Payload(payload, precision, schedules, plans)


def _take_line(payload: bytes, prefix: bytes) -> tuple[bytes | None, bytes]:
    """Return the line with a prefix, without the prefix, and the rest; ``None`` if the payload begins otherwise."""
    if not payload.startswith(prefix):
        return None, payload
    line, _, rest = payload.partition(b"\n")
    return line.removeprefix(prefix), rest


def _read_schedules(line: bytes) -> Mapping[str, Mapping[str, str]]:
    try:
        schedules = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(_WHERE, f"has malformed schedules: {error}") from error
    functions = schedules.values() if isinstance(schedules, dict) else [None]
    if not all(
        isinstance(names, dict) and all(isinstance(name, str) for name in names.values()) for names in functions
    ):
        raise ArtifactError(_WHERE, "has malformed schedules", expected="names by function and result")
    result: Mapping[str, Mapping[str, str]] = schedules
    return result
