"""Payloads of engines with stored state: their form, and forbidden contents of a file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from byoc_core.errors import ArtifactError
from byoc_core.runtime.graph.payload import GraphPayload, decode_payload, encode_payload
from hypothesis import given
from hypothesis import strategies as st

from core.tests.runtime.graph.engines import DOCUMENT

pytestmark = pytest.mark.interpreter

STATE = {"mode": "fast", "levels": [1, 2.5, None, True], "of": {"x": -1}}
PAYLOAD = encode_payload(GraphPayload(DOCUMENT, STATE, {"double": b"\x00\xffprogram"}), "engine `toy`")


def test_a_payload_survives_its_bytes() -> None:
    read = decode_payload(PAYLOAD)
    assert (read.state, read.saved) == (STATE, {"double": b"\x00\xffprogram"})
    assert encode_payload(read, "engine `toy`") == PAYLOAD
    assert list(json.loads(PAYLOAD)) == ["saved", "schema", "state", "version", "graph"]


def test_nothing_kept_of_a_function_is_left_out() -> None:
    data = json.loads(encode_payload(GraphPayload(DOCUMENT, STATE, {"double": b""}), "engine `toy`"))
    assert data["saved"] == {}


def deep(depth: int) -> list[Any]:
    return [deep(depth - 1)] if depth else []


Change = Callable[[Any], object]
VERSION = "graph payload: has a version unknown to this byoc-core"
SAVED = "graph payload, saved"
CHANGES: list[tuple[str, Change]] = [
    (f"{VERSION}; got 2, expected 1", lambda d: d.update(version=2)),
    (f"{VERSION}; got True, expected 1", lambda d: d.update(version=True)),
    ("graph payload: has no field 'saved'", lambda d: d.pop("saved")),
    (
        "graph payload: has an unknown field 'code'; expected schema, version, state, saved, graph",
        lambda d: d.update(code="x"),
    ),
    ("graph payload, state: is not a dict: list", lambda d: d.update(state=[])),
    ("graph payload, state: is nested more than 8 levels deep", lambda d: d["state"].update(x=deep(9))),
    ("graph payload, state: holds an integer of more than 64 bits", lambda d: d["state"].update(x=2**64)),
    (
        "graph payload, state: has 65599 bytes as JSON, more than 65536",
        lambda d: d["state"].update(x="y" * 65536),
    ),
    (f"{SAVED}: is not an object; got list", lambda d: d.update(saved=[])),
    (f"{SAVED}: names a missing function; got 'other'", lambda d: d["saved"].update(other="AA==")),
    (f"{SAVED}, function `double`: is not a text; got 3", lambda d: d["saved"].update(double=3)),
    (f"{SAVED}, function `double`: is not a text; got ''", lambda d: d["saved"].update(double="")),
    (f"{SAVED}, function `double`: is not Base64", lambda d: d["saved"].update(double="A?==")),
    (
        "graph payload: holds neither settings nor saved bytes. Use the document itself as the payload.",
        lambda d: d.update(state={}, saved={}),
    ),
    ("graph document: has no field 'functions'", lambda d: d["graph"].pop("functions")),
    ("graph document: is not an object; got list", lambda d: d.update(graph=[])),
]


@pytest.mark.parametrize(("text", "change"), CHANGES, ids=[text for text, _ in CHANGES])
def test_a_payload_that_breaks_a_law(text: str, change: Change) -> None:
    data = json.loads(PAYLOAD)
    change(data)
    with pytest.raises(ArtifactError) as caught:
        decode_payload(json.dumps(data).encode())
    assert str(caught.value) == text


def test_a_payload_within_a_payload_is_none() -> None:
    data = json.loads(PAYLOAD)
    data["graph"] = json.loads(PAYLOAD)
    with pytest.raises(ArtifactError, match="graph document: has no field 'functions'"):
        decode_payload(json.dumps(data).encode())


@given(
    st.integers(0, len(PAYLOAD) - 1),
    st.sampled_from([*b'{}[]",:0919azAZ=\\ \xff\x00', None]),
)
def test_changed_bytes_raise_only_our_own_errors(index: int, byte: int | None) -> None:
    changed = PAYLOAD[:index] + (b"" if byte is None else bytes([byte])) + PAYLOAD[index + 1 :]
    with contextlib.suppress(ArtifactError):
        decode_payload(changed)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema":' * 100_000, '{"state":' + "9" * 10_000 + "}"])
def test_text_that_breaks_parsers(text: str) -> None:
    with pytest.raises(ArtifactError, match="graph document: is not JSON text"):
        decode_payload(text.encode())
