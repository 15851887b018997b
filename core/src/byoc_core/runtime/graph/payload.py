"""The payload of a graph module: a graph document, the engine's settings, and bytes for each compiled function.

An engine without settings and bytes has the JSON form of the document as payload. Any other payload is a JSON
object with three parts: the document, the settings as plain JSON, and the bytes in Base64. Sizes are bounded, and all
parts are checked when the payload is read.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from byoc_core.errors import ArtifactError, PluginError
from byoc_core.runtime.graph.document import GraphDocument
from byoc_core.runtime.graph.encoding import checked_fields, decode_json, encode_document, read_document

__all__ = ["MAX_SAVED_NBYTES", "MAX_STATE_NBYTES", "GraphPayload", "decode_payload", "encode_payload"]

MAX_STATE_NBYTES = 64 << 10
"""The maximum size in bytes of the JSON text of an engine's settings."""

MAX_SAVED_NBYTES = 16 << 20
"""The maximum size in bytes of an engine's saved bytes for one function."""

_SCHEMA = "byoc.engine-graph"
_VERSION = 1
_MAX_DEPTH = 8
_MAX_INTEGER = 2**63 - 1
_WHERE = "graph payload"


@dataclass(frozen=True, slots=True)
class GraphPayload:
    """A document with the settings of the engine, and with the bytes saved by the engine.

    Attributes:
        document: the functions.
        state: see :attr:`~byoc_core.runtime.graph.engine.GraphEngine.state`.
        saved: see :meth:`~byoc_core.runtime.graph.engine.GraphEngine.save_prepared`; by function.
    """

    document: GraphDocument
    state: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    saved: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))


def encode_payload(payload: GraphPayload, where: str) -> bytes:
    """Return the bytes of a payload; equal payloads have equal bytes. Functions without saved bytes are left out.

    Args:
        payload: the payload to write.
        where: the engine, for errors.

    Raises:
        PluginError: the engine keeps more than a payload may hold, or has settings other than plain JSON.
    """
    text = encode_document(payload.document)
    saved = {name: content for name, content in payload.saved.items() if content}
    if not payload.state and not saved:
        return text
    state = dict(payload.state)
    problem = _state_problem(state)
    if problem is not None:
        raise PluginError(f"{where}, state", problem, hint="Return a dict of plain JSON values.")
    for function, content in saved.items():
        if len(content) > MAX_SAVED_NBYTES:
            location = f"{where}, function `{function}`"
            raise PluginError(
                location, "saves too many bytes", got=len(content), expected=f"at most {MAX_SAVED_NBYTES}"
            )
    data = {
        "schema": _SCHEMA,
        "version": _VERSION,
        "state": state,
        "saved": {name: base64.b64encode(content).decode() for name, content in saved.items()},
    }
    head = json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return f'{head[:-1]},"graph":'.encode() + text + b"}"


def decode_payload(payload: bytes) -> GraphPayload:
    """Read a payload, and check every law of the payload and of the document.

    Raises:
        ArtifactError: the bytes are no such payload, are of a newer version, or break a law; names the location.
    """
    data = decode_json(payload)
    if not isinstance(data, dict) or data.get("schema") != _SCHEMA:
        return GraphPayload(read_document(data))
    fields = checked_fields(data, _WHERE, "schema", "version", "state", "saved", "graph")
    if type(fields["version"]) is not int or fields["version"] != _VERSION:
        problem = "has a version unknown to this byoc-core"
        raise ArtifactError(_WHERE, problem, got=repr(fields["version"])[:80], expected=_VERSION)
    misfit = _state_problem(fields["state"])
    if misfit is not None:
        raise ArtifactError(f"{_WHERE}, state", misfit)
    document = read_document(fields["graph"])
    saved = _decode_saved(fields["saved"], document)
    if not fields["state"] and not saved:
        raise ArtifactError(
            _WHERE, "holds neither settings nor saved bytes", hint="Use the document itself as the payload."
        )
    return GraphPayload(document, fields["state"], saved)


def _decode_saved(data: object, document: GraphDocument) -> dict[str, bytes]:
    where = f"{_WHERE}, saved"
    if not isinstance(data, dict):
        raise ArtifactError(where, "is not an object", got=type(data).__name__)
    saved: dict[str, bytes] = {}
    for name, text in data.items():
        if name not in document.functions:
            raise ArtifactError(where, "names a missing function", got=repr(name)[:80])
        location = f"{where}, function `{name}`"
        if not isinstance(text, str) or not text:
            raise ArtifactError(location, "is not a text", got=repr(text)[:80])
        if len(text) > MAX_SAVED_NBYTES * 4 // 3 + 4:
            raise ArtifactError(location, "is too long", expected=f"at most {MAX_SAVED_NBYTES} bytes")
        try:
            saved[name] = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ArtifactError(location, "is not Base64") from error
    return saved


def _state_problem(state: object) -> str | None:
    """Return the reason why settings do not fit into a payload, or ``None``."""
    if not isinstance(state, dict):
        return f"is not a dict: {type(state).__name__}"
    misfit = _find_misfit(state, 0)
    if misfit is not None:
        return misfit
    nbytes = len(json.dumps(state, separators=(",", ":")))
    return f"has {nbytes} bytes as JSON, more than {MAX_STATE_NBYTES}" if nbytes > MAX_STATE_NBYTES else None


def _find_misfit(value: object, depth: int) -> str | None:
    if depth > _MAX_DEPTH:
        return f"is nested more than {_MAX_DEPTH} levels deep"
    items: list[object] = []
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"has a name other than text: {key!r:.80}"
        items = [*value.values()]
    elif isinstance(value, list):
        items = value
    elif isinstance(value, int) and abs(value) > _MAX_INTEGER:
        return "holds an integer of more than 64 bits"
    elif not (value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))):
        return f"holds a value other than plain JSON: {value!r:.80}"
    return next((misfit for item in items if (misfit := _find_misfit(item, depth + 1)) is not None), None)
