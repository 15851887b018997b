"""Reports in artifacts: packing loses nothing, and unpacking takes any JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import byoc_core
from byoc_core.artifact.report_packing import pack_report, unpack_report
from byoc_core.ops import FunctionBuilder
from hypothesis import given
from hypothesis import strategies as st

SCALARS = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from([0.0, 1.0, 0.5]) | st.text(max_size=2)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
)
ROWS = st.lists(st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4), max_size=6)
TABLES = st.sampled_from(["ops", "regions", "borders", "summary", "total_flops"])


def text(value: object) -> str:
    """Return JSON text distinguishing 1, 1.0 and true."""
    return json.dumps(value, sort_keys=True)


@given(st.dictionaries(TABLES, ROWS))
def test_packing_loses_nothing(report: dict[str, Any]) -> None:
    packed = json.loads(text(pack_report(report)))
    unpacked = unpack_report(packed)
    assert text(unpacked) == text(report)
    assert text(pack_report(unpacked)) == text(packed)


COLUMN = st.dictionaries(st.sampled_from(["values", "index"]), JSON)
COLUMNS = st.dictionaries(st.text(max_size=2), COLUMN | JSON)
PACKED = st.fixed_dictionaries({"count": st.integers(-1, 3) | JSON, "columns": COLUMNS | JSON})


@given(st.dictionaries(TABLES, PACKED | JSON))
def test_any_json_is_unpacked(packed: dict[str, Any]) -> None:
    assert unpack_report(packed).keys() == packed.keys()


def test_what_is_no_packed_table_stays_as_it_is() -> None:
    tables: list[dict[str, Any]] = [
        {"count": 2, "columns": {"a": {"values": ["x", "y"], "index": [0, 5]}}},
        {"count": 2, "columns": {"a": {"values": ["x", "y"], "index": 2}}},
        {"count": 1, "columns": {"a": {"values": []}}},
        {"count": 10**9, "columns": {}},
        {"count": 0},
    ]
    for table in tables:
        assert unpack_report({"ops": table}) == {"ops": table}


def test_an_artifact_holds_the_report_packed(fake_backend: Callable[..., Any], tmp_path: Path) -> None:
    builder = FunctionBuilder("main")
    value = builder.param("x", byoc_core.ir.tensor((4,)))
    for number in range(400):
        value = builder.bind(("tanh", "exp", "sin")[number % 3], [value], {}).results[0]
    module = byoc_core.IRModule({"main": builder.finish(value)}, builder.constants)
    built = byoc_core.build(module, [])
    built.save(tmp_path / "m.byoc")
    loaded = byoc_core.load(tmp_path / "m.byoc")
    assert loaded.report_data == built.report_data
    assert byoc_core.inspect(tmp_path / "m.byoc").report_data == built.report_data
    assert loaded.to_bytes() == built.to_bytes()
    rows = byoc_core.explain(module, [fake_backend("aone", ["tanh"])]).report_data
    assert len(text(pack_report(rows))) < len(text(rows)) / 3
