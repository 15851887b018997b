"""ONNX models with control flow, compiled, saved, loaded and run, equal to ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest

onnxruntime = pytest.importorskip("onnxruntime")

X = np.random.default_rng(0).integers(-4, 5, (3, 4)).astype(np.float32)

_BRANCHES = """g (float[3, 4] x, bool c) => (float[3, 4] y) { y = If(c) <
    then_branch = t () => (float[3, 4] a) { p = Mul(x, x) a = Relu(p) },
    else_branch = e () => (float[3, 4] a) { q = Neg(x) a = Relu(q) }> }"""
_NESTED = """g (float[3, 4] x, int64 m, bool c) => (float[3, 4] y) { y = Loop(m, , x) <
    body = b (int64 i, bool c_in, float[3, 4] v) => (bool c_out, float[3, 4] w) {
        c_out = Identity(c_in) s = Add(v, x) w = If(c) <
            then_branch = t () => (float[3, 4] a) { p = Add(s, x) a = Relu(p) },
            else_branch = e () => (float[3, 4] a) { q = Neg(s) a = Sub(q, v) }> }> }"""
_EARLY = """g (float[3, 4] x, int64 m) => (float[3, 4] y) <float one = {1}, int64 four = {4}> { y = Loop(m, , x) <
    body = b (int64 i, bool c_in, float[3, 4] v) => (bool c_out, float[3, 4] w) {
        c_out = Less(i, four) s = Add(v, one) w = Relu(s) }> }"""
_SCANNED = """g (float[4] h, float[300, 4] x) => (float[4] y, float[300, 4] s) { y, s = Scan<num_scan_inputs = 1,
    body = b (float[4] v, float[4] u) => (float[4] w, float[4] r) { p = Sub(u, v) w = Relu(p) r = Neg(w) }>(h, x) }"""

_LONG = np.random.default_rng(1).integers(-4, 5, (300, 4)).astype(np.float32)
_CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "if": (_BRANCHES, [{"x": X, "c": np.array(c)} for c in (True, False)]),
    "if in loop": (
        _NESTED,
        [{"x": X, "m": np.array(m), "c": np.array(c)} for m in (0, 1, 3) for c in (True, False)],
    ),
    "early end": (_EARLY, [{"x": X, "m": np.array(m)} for m in (0, 3, 100)]),
    "scan": (_SCANNED, [{"h": X[0], "x": _LONG}]),
}


def _expected(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


@pytest.mark.parametrize("name", _CASES)
def test_control_flow_equals_onnx_runtime(name: str, tmp_path: Path) -> None:
    """Values are small integers: no sum rounds."""
    text, runs = _CASES[name]
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {text}')
    executable = byoc_core.build(byoc_core.from_onnx(model), backends=["ccompiler"])
    assert "csource" in [native.type_key for native in executable.modules], "something was offloaded"
    offloaded = [row for row in executable.report_data["ops"] if row["op"] == "nn.relu"]
    assert offloaded, "the body has an op to offload"
    assert {row["outcome"] for row in offloaded} == {"ccompiler"}, "what stands inside the bodies was offloaded"
    executable.save(tmp_path / "model.byoc")
    machine = byoc_core.VirtualMachine(byoc_core.load(tmp_path / "model.byoc", allow_native=True))
    for feeds in runs:
        found = machine.run("main", feeds)
        for result, reference in zip(
            found if isinstance(found, tuple) else (found,), _expected(model, feeds), strict=True
        ):
            np.testing.assert_array_equal(result, reference)
