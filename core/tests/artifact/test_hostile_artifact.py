"""Malicious artifacts: right digests, wrong content. Only our own errors come out."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from byoc_core.artifact import inspect, load, verify
from byoc_core.artifact.archive import Buffer, read_archive, write_archive
from byoc_core.errors import ArtifactError, RuntimeNotFoundError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.interpreter

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5),
    st.sampled_from([
        [], {}, "n", "2*n", "n//0", "float64", "bool", "graph", "csource", 0, 1, 2**62, -1, 1e300, [0, 2**62, 2**62],
        [1] * 70, ["n"], "(a+b)*" * 20 + "1", {"name": "host", "flops": 2**4000},
        [{"outcome": "host", "flops": 10**400}],
    ]),
)  # fmt: skip


def places(data: object) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        found += [(data, key), *places(value)]
    return found


def members_of(content: bytes) -> dict[str, bytes]:
    return {name: content[m.offset : m.end] for name, m in read_archive(memoryview(content), "x").items()}


def use(path: Path, members: dict[str, Buffer]) -> None:
    file = io.BytesIO()
    write_archive(file, members)
    path.write_bytes(file.getvalue())
    for action in (load, verify, inspect):
        with contextlib.suppress(ArtifactError, RuntimeNotFoundError):
            action(path).report()


@settings(
    max_examples=3 * settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_any_manifest(content: bytes, tmp_path: Path, data: st.DataObject) -> None:
    members = members_of(content)
    manifest = json.loads(members["manifest.json"])
    for _ in range(data.draw(st.integers(1, 2))):
        holder, key = data.draw(st.sampled_from(places(manifest)))
        if isinstance(holder, dict) and data.draw(st.booleans()):
            holder[data.draw(st.text(max_size=3)) or key] = copy.deepcopy(data.draw(VALUES))
        else:
            holder[key] = copy.deepcopy(data.draw(VALUES))
    use(tmp_path / "x.byoc", {**members, "manifest.json": json.dumps(manifest).encode()})


@settings(
    max_examples=3 * settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_any_program_and_payload(content: bytes, tmp_path: Path, data: st.DataObject) -> None:
    members = members_of(content)
    name = data.draw(st.sampled_from(["program", "modules/0/payload"]))
    changed = bytearray(members[name])
    start = data.draw(st.integers(0, len(changed)))
    changed[start : start + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    members[name] = bytes(changed)
    manifest = json.loads(members["manifest.json"])
    digest = hashlib.sha256(changed).hexdigest()
    if name == "program":
        manifest["program"] = digest
    else:
        manifest["modules"][0]["digest"] = digest
    use(tmp_path / "x.byoc", {**members, "manifest.json": json.dumps(manifest).encode()})


def test_manifest_that_is_no_json(content: bytes, tmp_path: Path) -> None:
    for text in (b"", b"[]", b"[" * 100_000, b"\xff", b'{"report": NaN}', b"9" * 5000):
        members: dict[str, Buffer] = {**members_of(content), "manifest.json": text}
        file = io.BytesIO()
        write_archive(file, members)
        path = tmp_path / "x.byoc"
        path.write_bytes(file.getvalue())
        with pytest.raises(ArtifactError, match=r"member manifest\.json"):
            load(path)
