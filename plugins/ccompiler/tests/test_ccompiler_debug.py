"""``byoc debug`` with real generated C: correct code, and code with a fault, with the op at fault named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

# The plugin with one op compiled as another: right C of a wrong program.
BROKEN = """
from dataclasses import replace

import byoc_ccompiler.backend as ccompiler
from byoc_core.backend.hooks import BackendInfo, hookimpl
from byoc_core.ops import default_ops

FAULT = {fault}

@hookimpl
def byoc_backend_info():
    return BackendInfo("brokenc", dynamic_shapes=True, native=True)

@hookimpl
def byoc_supports(binding, context):
    return ccompiler.byoc_supports(binding, context)

@hookimpl
def byoc_codegen(functions, context):
    return ccompiler.byoc_codegen([broken(function) for function in functions], context)

def broken(function):
    bindings = []
    for binding in function.bindings:
        if binding.op.name in FAULT:
            binding = replace(binding, op=default_ops()[FAULT[binding.op.name]])
        bindings.append(binding)
    return replace(function, bindings=tuple(bindings))
"""
MODEL = """g (float[n, 8] x, int64 m) => (float[n, 8] y) <float[8, 8] w> {
    h = MatMul(x, w)
    a = Relu(h)
    y = Loop(m, , a) <
        body = b (int64 i, bool c_in, float[n, 8] v) => (bool c_out, float[n, 8] u) {
            c_out = Identity(c_in) s = Add(v, x) e = Sigmoid(s) u = Mul(e, s) }> }"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a small network: a dense layer, and a loop over an elementwise chain."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {MODEL}')
    weight = [((7 * k) % 13 - 6) / 8 for k in range(64)]
    model.graph.initializer.append(onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [8, 8], weight))
    onnx.save(model, str(tmp_path / "model.onnx"))
    np.save(tmp_path / "m.npy", np.array(3))
    return tmp_path


def install_broken(folder: Path, **fault: str) -> None:
    """Install the broken plugin in a folder, or replace the installed plugin."""
    info = folder / "byoc_brokenc-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / "brokenc_backend.py").write_text(BROKEN.format(fault=repr(fault)))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: byoc-brokenc\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[byoc.backends]\nbrokenc = brokenc_backend\n")


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def debug(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ("-c", "from byoc_core.cli.main import main; main()", "debug", "model.onnx")
    return run(folder, *command, "--dim", "n=5", "--input", "m=m.npy", "--random-inputs", *arguments)


def test_generated_c_diverges_nowhere(work: Path) -> None:
    done = debug(work, "--backend", "ccompiler", "--json", "--accumulate")
    assert (done.returncode, done.stderr) == (0, "")
    report: dict[str, Any] = json.loads(done.stdout)
    assert (report["right"], report["tested"], report["isolated"]) == (True, True, True)
    ops = [op for region in report["regions"] for op in region["ops"]]
    assert "sigmoid" in ops, "the body of the loop was offloaded"
    assert any("nn.dense" in op or "matmul" in op for op in ops)
    assert {region["verdict"] for region in report["regions"]} == {"right"}
    assert max(region["calls"] for region in report["regions"]) == 3, "once a round"


def test_a_wrong_op_in_generated_c_is_named_saved_and_reproduced(work: Path) -> None:
    install_broken(work / "site", sigmoid="tanh")
    done = debug(work, "--backend", "brokenc", "--save", "out")
    assert (done.returncode, done.stderr) == (1, "")
    assert "guilty: `sigmoid` (`" in done.stdout
    (marked,) = [line for line in done.stdout.splitlines() if line.startswith(">")]
    assert "R.sigmoid(" in marked
    (script,) = (work / "out").glob("*/repro.py")

    failing = run(work, str(script))
    assert (failing.returncode, failing.stderr) == (1, "")
    assert "wrong-values: output `" in failing.stdout
    install_broken(work / "site")
    passing = run(work, str(script))
    assert (passing.returncode, passing.stderr) == (0, "")
