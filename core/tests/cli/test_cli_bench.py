"""``byoc bench``: the table, JSON, exit codes, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from byoc_core.benchmarking import peers
from byoc_core.benchmarking.peers import Peer

from core.tests.cli.conftest import RunByoc
from core.tests.cli.test_cli_explain import PLUGIN

pytestmark = pytest.mark.lowest

QUICK = ("--threads", "1", "--seconds", "0.01", "--starts", "1")
FAKE = """
import numpy as np
from byoc_core.benchmarking import OpenedEngine


def compute(task):
    x, m = task.inputs["x"], task.inputs["m"]
    return [np.zeros((len(x), 8), "float32"), m]


def open_engine(task):
    return OpenedEngine(lambda: compute(task), lambda: compute(task), "2.0")
"""


@pytest.fixture
def zeros(byoc: RunByoc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an engine with wrong outputs in the table of peers; another peer is not installed."""
    folder = tmp_path / "engines"
    folder.mkdir()
    (folder / "fake_zeros.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(folder))
    rows = {
        "zeros": Peer("fake_zeros", "pip install zeros", "fake_zeros:open_engine", ""),
        "absent": Peer("no_such_engine", "pip install absent", "m:f", ""),
    }
    monkeypatch.setattr(peers, "PEERS", rows)
    return "zeros"


def test_figures_of_a_model_and_of_an_artifact(byoc: RunByoc, model: Path) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    for file in (model, "m.byoc"):
        done = byoc("bench", file, *QUICK, "--dim", "n=1,4", "--json")
        assert (done.code, done.err) == (0, "")
        data = json.loads(done.out)
        assert (data["schema"], data["num_starts"], data["seconds"]) == (1, 1, 0.01)
        assert [row["sizes"] for row in data["rows"]] == [{"n": 1}, {"n": 4}]
        assert [row["batch_size"] for row in data["rows"]] == [1, 4]
        assert all(row["latency"]["median"] > 0 for row in data["rows"])
    text = byoc("bench", model, *QUICK)
    assert (text.code, text.err) == (0, "")
    for head in ("median", "p99", "calls/s", "items/s", "load", "first call", "memory", "time / byoc"):
        assert head in text.out
    assert "n=1" in text.out


def test_regions_of_static_shapes_are_compiled_for_the_measured_sizes(
    byoc: RunByoc, model: Path, install_backend: Callable[[str, str], Path]
) -> None:
    install_backend("part", PLUGIN)
    done = byoc("bench", model, *QUICK, "--dim", "n=2", "--json")
    assert done.code == 0, done.err
    assert "host" not in done.err  # no warning of lost offload


def test_inputs_come_from_files(byoc: RunByoc, model: Path) -> None:
    np.save("x.npy", np.ones((3, 16), "float32"))
    done = byoc("bench", model, *QUICK, "--input", "x=x.npy", "--random", "m", "--json")
    assert done.code == 0, done.err
    assert [row["sizes"] for row in json.loads(done.out)["rows"]] == [{"n": 3}]
    done = byoc("bench", model, *QUICK, "--input", "x=x.npy")
    assert done.code == 1
    assert "--input: lacks `m`" in done.err


def test_other_outputs_end_with_exit_status_1_behind_the_figures(byoc: RunByoc, model: Path, zeros: str) -> None:
    done = byoc("bench", model, *QUICK, "--against", zeros)
    assert (done.code, done.err) == (1, "")
    assert "differ" in done.out
    assert "zeros, n=1, threads 1: outputs differ: wrong compared with the model in float64; zeros: " in done.out
    data = json.loads(byoc("bench", model, *QUICK, "--against", zeros, "--json").out)
    assert data["agrees"] is False
    row = data["rows"][1]
    assert (row["engine"], row["ratio"], row["outputs"]["agrees"]) == (zeros, None, False)
    assert row["latency"]["median"] > 0


def test_an_artifact_needs_the_onnx_file_for_peers(byoc: RunByoc, model: Path, zeros: str) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    done = byoc("bench", "m.byoc", "--against", zeros)
    assert done.code == 1
    assert done.err == (
        "error: --against: needs the ONNX model of the artifact `m.byoc`. Give the model by --model FILE.onnx.\n"
    )
    done = byoc("bench", "m.byoc", *QUICK, "--against", zeros, "--model", model, "--json")
    assert [row["engine"] for row in json.loads(done.out)["rows"]] == ["byoc", zeros]


def test_impossible_requests_end_before_compiling(byoc: RunByoc, model: Path, zeros: str) -> None:
    for arguments, text in (
        (("--against", "absent"), "--against: `absent` is not installed. Install the engine: pip install absent"),
        (("--against", "zeros,zeroes"), "--against: `zeroes` is not a known engine"),
        (("--dim", "k=3"), "--dim k: is not a symbolic size of the inputs; expected n"),
        (("--dim", "n=1,x"), "--dim: is malformed; got 'n=1,x'"),
        (("--threads", "1,two"), "--threads: is malformed; got 'two'"),
        (("--threads", "0"), "--threads: value not permitted; got 0"),
        (("--function", "mian"), "main"),
        (("--model", str(model)), "--model: is given beside the ONNX model"),
    ):
        done = byoc("bench", model, *arguments)
        assert done.code == 1
        assert text in done.err
    assert byoc("bench", model, "--starts", "0").code == 2
    assert byoc("bench", "missing.onnx").code == 1


def test_several_numbers_of_threads(byoc: RunByoc, model: Path) -> None:
    done = byoc("bench", model, *QUICK, "--threads", "2,1", "--json")
    assert [row["num_threads"] for row in json.loads(done.out)["rows"]] == [1, 2]
