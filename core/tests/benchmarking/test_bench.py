"""Benchmarks of a small model on the host, beside fake engines and ONNX Runtime."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.benchmarking import Benchmark, bench
from byoc_core.errors import CallError, ExecutionError, OptionsError

from core.tests.benchmarking.fake_engines import PEERS

ROW_KEYS = {
    *("sizes", "num_threads", "engine", "batch_size", "latency", "calls_per_second", "items_per_second"),
    *("load_seconds", "first_call_seconds", "peak_nbytes", "num_warm_up_calls", "ratio", "outputs", "failure"),
}


def quick(executable: Executable, onnx_file: Path | None = None, **arguments: Any) -> Benchmark:
    """Return a short benchmark on one thread, with the fake engines."""
    defaults: dict[str, Any] = {"num_threads": 1, "seconds": 0.01, "num_starts": 1, "peers": PEERS, "model": onnx_file}
    return bench(executable, **{**defaults, **arguments})


@pytest.mark.interpreter
def test_figures_of_sizes_and_of_a_right_engine(executable: Executable, onnx_file: Path) -> None:
    stages: list[str] = []
    found = quick(
        executable,
        onnx_file,
        sizes={"n": [1, 3], "k": 4},
        against=["right"],
        num_starts=2,
        progress=stages.append,
    )
    assert found.agrees
    assert found.is_complete
    data = json.loads(json.dumps(found.to_data(), allow_nan=False))
    assert set(data) == {
        *("schema", "function", "machine", "seconds", "num_starts", "agrees", "is_complete", "engines", "rows")
    }
    assert [engine["name"] for engine in data["engines"]] == ["byoc", "right"]
    assert [engine["version"] for engine in data["engines"]] == [byoc_core.__version__, "1.0"]
    assert [(row["sizes"], row["engine"]) for row in data["rows"]] == [
        ({"n": size, "k": 4}, name) for size in (1, 3) for name in ("byoc", "right")
    ]
    for row in data["rows"]:
        assert set(row) == ROW_KEYS
        latency = row["latency"]
        assert latency["num_calls"] >= 12
        assert 0 < latency["least"] <= latency["median"] <= latency["p90"] <= latency["p99"]
        assert row["calls_per_second"] == pytest.approx(1 / latency["mean"])
        assert row["load_seconds"] > 0
        assert row["first_call_seconds"] > 0
        assert row["num_warm_up_calls"] >= 4
        assert row["failure"] == ""
        assert row["batch_size"] is None  # `k` stands in front of the other input
        assert row["items_per_second"] is None
    for row in data["rows"][::2]:
        assert (row["ratio"], row["outputs"]) == (None, None)
    for row in data["rows"][1::2]:
        assert 0 < row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
        assert row["ratio"]["num_rounds"] == 12
        assert row["outputs"]["agrees"] is True
        assert row["outputs"]["max_error"] < 1e-5
    assert "n=3, k=4, threads 1: right, start 2 of 2" in stages
    assert stages.index("n=1, k=4, threads 1: compare outputs") < stages.index("n=1, k=4, threads 1: round 1 of 6")
    assert "compare outputs" not in "".join(stages[stages.index("n=3, k=4, threads 1: round 1 of 6") :])
    text = str(found)
    assert "byoc 0." in text
    assert " agree" in text


def test_items_of_a_batch_are_counted(tmp_path: Path) -> None:
    module = byoc_core.parse("""
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n",), "float32")):
    z = R.nn.relu(x)
    return z, y
""")
    found = quick(byoc_core.build(module, backends=[]), sizes={"n": 6}, num_threads=[1, 1])
    (row,) = found.rows
    assert row.batch_size == 6
    assert row.calls_per_second is not None
    assert row.items_per_second == pytest.approx(6 * row.calls_per_second)


@pytest.mark.parametrize(
    ("engine", "problem"),
    [
        ("wrong", "wrong compared with the model in float64; wrong: output `y`: error 0.25"),
        ("wrong_place", "wrong compared with the model in float64; wrong_place: output `places`: "),
        ("wide", "output `y` is float64 [1, 1] in wide, float32 [1, 1] in byoc"),
    ],
)
def test_other_outputs_are_reported_and_have_no_ratio(
    executable: Executable, onnx_file: Path, engine: str, problem: str
) -> None:
    found = quick(executable, onnx_file, against=[engine, "right"], sizes={"k": 3})
    assert not found.agrees
    assert found.is_complete
    byoc, wrong, right = found.rows
    assert wrong.outputs is not None
    assert wrong.outputs.problem.startswith(problem.replace("[1, 1]", "[1, 8]"))
    assert wrong.ratio is None
    assert wrong.latency is not None
    assert right.ratio is not None
    assert byoc.outputs is None
    assert f"{engine}, n=1, k=3, threads 1: outputs differ: {wrong.outputs.problem}" in str(found)


@pytest.mark.parametrize(
    ("engine", "failure"),
    [
        ("refusing", "NotImplementedError: no operator Relu on 1 thread"),
        ("raising", "ValueError: the second call"),
        ("crashing", "the process ended with exit status 3"),
    ],
)
def test_a_failing_engine_leaves_the_figures_of_others(
    executable: Executable, onnx_file: Path, engine: str, failure: str
) -> None:
    found = quick(executable, onnx_file, against=[engine, "right"])
    assert found.agrees
    assert not found.is_complete
    byoc, failed, right = found.rows
    assert failed.failure.splitlines()[0] == failure
    assert (failed.latency, failed.ratio, failed.outputs) == (None, None, None)
    assert byoc.latency is not None
    assert right.ratio is not None
    assert f"{engine}, n=1, k=1, threads 1: failed: {failure}" in str(found)


def test_given_inputs_are_measured(executable: Executable) -> None:
    sets = [{"x": np.ones((n, 2), np.float32), "w": np.ones((2, 8), np.float32)} for n in (2, 5)]
    assert [row.sizes for row in quick(executable, inputs=sets).rows] == [{"n": 2, "k": 2}, {"n": 5, "k": 2}]
    assert [row.sizes for row in quick(executable, inputs=sets[0]).rows] == [{"n": 2, "k": 2}]


ONES = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"against": ["right"], "model": None}, "bench, model: is missing: peers load an ONNX file"),
        ({"against": ["left"]}, "bench, against: `left` is not a known engine"),
        ({"sizes": {"m": 2}}, "bench, size `m`: is not a symbolic size of the inputs; expected k, n"),
        ({"sizes": {"n": 2}, "inputs": {"x": ONES}}, "bench, sizes: are given beside inputs"),
        ({"inputs": []}, "bench, inputs: is an empty list"),
        ({"seconds": -1.0}, "bench, seconds: is not a budget"),
        ({"seconds": float("nan")}, "bench, seconds: is not a budget"),
        ({"num_starts": 0}, "bench, num_starts: is too small"),
        ({"num_threads": [1, 0]}, "bench, num_threads: value not permitted; got 0"),
    ],
)
def test_impossible_requests(executable: Executable, onnx_file: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        quick(executable, **{"onnx_file": onnx_file, **arguments})
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"x": ONES}, "function `main`: lacks input `w`"),
        ({"x": ONES, "v": ONES}, "function `main`: has no input `v`; expected x, w"),
        ({"x": ONES, "w": ONES}, "function `main`, input 1 `w`: axis 1 has the wrong size"),
        ({"x": ONES.astype("int8"), "w": ONES}, "function `main`, input 0 `x`: "),
    ],
)
def test_unfit_inputs(executable: Executable, inputs: dict[str, Any], text: str) -> None:
    with pytest.raises(CallError) as caught:
        quick(executable, inputs=inputs)
    assert str(caught.value).startswith(text)


def test_the_onnx_file_must_be_of_the_same_model(onnx_file: Path) -> None:
    module = byoc_core.parse('def main(x: R.Tensor((2, 4), "float32")):\n    y = R.nn.relu(x)\n    return y\n')
    with pytest.raises(OptionsError) as caught:
        quick(byoc_core.build(module, backends=[]), onnx_file, against=["right"])
    assert str(caught.value) == (
        "bench, model: has other inputs than the compiled model; got x float32 ['n', 'k'], w float32 ['k', '8'], "
        "expected x float32 ['2', '4']. Give the ONNX file of this compiled model."
    )


def test_a_failure_of_byoc_is_an_error(
    executable: Executable, onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from byoc_core.benchmarking import measuring

    monkeypatch.setattr(measuring, "BYOC_ENTRY", PEERS["refusing"].entry)
    with pytest.raises(ExecutionError, match="no operator Relu"):
        quick(executable, onnx_file, against=["right"])


@pytest.mark.interpreter
def test_measuring_processes_do_not_import_the_compiler() -> None:
    script = "import byoc_core.benchmarking.worker, byoc_core.benchmarking.byoc_engine, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "byoc_core.benchmarking.timing" in loaded
    for module in ("byoc_core.ir", "byoc_core.artifact", "byoc_core.vm", "byoc_core.driver", "ml_dtypes", "onnx"):
        assert module not in loaded


def test_beside_onnx_runtime(executable: Executable, onnx_file: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = quick(executable, onnx_file, against=["onnxruntime"], peers=None, sizes={"n": 5, "k": 16})
    assert found.agrees
    assert found.is_complete
    _, row = found.rows
    assert row.ratio is not None
    assert row.outputs is not None
    assert row.outputs.max_error is not None
    assert found.engines[1].version.count(".") >= 1


def test_beside_openvino(executable: Executable, onnx_file: Path) -> None:
    pytest.importorskip("openvino")
    found = quick(executable, onnx_file, against=["openvino"], peers=None, sizes={"n": 5, "k": 16})
    assert found.is_complete
    assert found.agrees
