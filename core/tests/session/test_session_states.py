"""Sessions of models with states: detection, pairs, several sequences, the cache of compiled models, and errors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.benchmarking.byoc_engine import open_engine
from byoc_core.benchmarking.engine import EngineTask
from byoc_core.errors import CallError, IRError, OptionsError
from byoc_core.profiling import Peaks
from byoc_core.session import Session

from core.tests.session.conftest import Write

DECODER = """
<ir_version: 8, opset_import: ["" : 17]>
decoder (float[b, 2, n, 3] x, float[b, 2, p, 3] past_0) => (float[b, 2, 3] y, float[b, 2, q, 3] present_0)
{
    present_0 = Concat<axis = 2>(past_0, x)
    y = ReduceMax<axes = [2], keepdims = 0>(present_0)
}
"""
PAIR = [("past_0", "present_0")]


def rows(length: int, value: float = 1.0) -> Any:
    return np.full((2, 2, length, 3), value, np.float32)


@pytest.mark.parametrize("states", ["detect", PAIR])
def test_states_are_no_inputs_and_no_outputs(write: Write, states: Any) -> None:
    session = Session(write(DECODER), backends=[], states=states)
    assert [str(value) for value in session.inputs] == ["x: float32[b, 2, n, 3]"]
    assert [value.name for value in session.outputs] == ["y"]
    assert session(rows(3, 5.0))["y"].max() == 5
    assert session(x=rows(1, 2.0))["y"].max() == 5
    assert session.state.length == 4
    session.reset()
    (result,) = session.run(["y"], {"x": rows(1, 2.0)})
    assert result.max() == 2


def test_several_sequences(write: Write) -> None:
    session = Session(write(DECODER), backends=[], states="detect")
    left, right = session.new_state(capacity=10, limit=20), session.new_state()
    session.run(None, {"x": rows(2, 7.0)}, state=left)
    (result,) = session.run(None, {"x": rows(2, 1.0)}, state=right)
    assert result.max() == 1
    future = session.run_async(None, {"x": rows(1, 0.0)}, state=left)
    assert future.result()[0].max() == 7
    assert (left.length, right.length, session.state.length) == (3, 2, 0)
    with pytest.raises(CallError, match="goes over the limit of rows; got 21, expected at most 20"):
        session.run(None, {"x": rows(18)}, state=left)


def test_the_cache_of_compiled_models_tells_states_apart(write: Write, tmp_path: Path) -> None:
    path = write(DECODER)
    folder = tmp_path / "compiled"
    for _ in range(2):
        plain = Session(path, backends=[], cache=folder)
        stateful = Session(path, backends=[], cache=folder, states="detect")
        assert [value.name for value in plain.inputs] == ["x", "past_0"]
        assert [value.name for value in stateful.inputs] == ["x"]
    again: Session = pickle.loads(pickle.dumps(stateful))
    again(rows(2))
    assert (again.state.length, stateful.state.length) == (2, 0)


def test_misuse(write: Write) -> None:
    path = write(DECODER)
    with pytest.raises(OptionsError) as caught:
        Session(path, backends=[], states="guess")
    assert str(caught.value) == "states: has an unknown value; got 'guess', expected `detect`, or pairs of names"
    with pytest.raises(IRError, match="has no input `past` for a state"):
        Session(path, backends=[], states=[("past", "present_0")])
    module = byoc_core.from_onnx(path)
    with pytest.raises(OptionsError, match="states: does not apply to an imported module"):
        Session(module, backends=[], states="detect")
    executable = byoc_core.build(module, [])
    with pytest.raises(OptionsError, match="session: states: an executable is compiled already"):
        Session(executable, states="detect")
    plain = Session(executable)
    for use in (lambda: plain.state, plain.new_state, plain.reset):
        with pytest.raises(CallError, match="function `main`: has no states"):
            use()


def test_a_profile_measures_at_the_state_and_leaves_the_state(write: Write) -> None:
    session = Session(write(DECODER), backends=[], states="detect")
    session.run(None, {"x": rows(700, 5.0)})
    found = session.profile({"x": rows(1)}, num_calls=3, peaks=Peaks(1e9, 1e9))
    assert (found.sizes["p"], found.sizes["n"], found.sizes["b"]) == (700, 1, 2)
    assert session.state.length == 700
    assert session.profile(num_calls=2, peaks=Peaks(1e9, 1e9)).sizes["p"] == 700  # drawn inputs fit the state
    other = session.new_state()
    assert session.profile({"x": rows(4)}, num_calls=2, state=other, peaks=Peaks(1e9, 1e9)).sizes["p"] == 0
    assert other.length == 0


def test_a_profile_of_an_executable_begins_without_rows(write: Write) -> None:
    session = Session(write(DECODER), backends=[], states="detect")
    found = byoc_core.profile(session.executable, [rows(2)], num_calls=5, peaks=Peaks(1e9, 1e9))
    assert (found.sizes["p"], found.num_calls) == (0, 5)


SUM = """
<ir_version: 8, opset_import: ["" : 17]>
running (float[b] x, float[b] past_0) => (float[b] y, float[b] present_0)
{
    present_0 = Add(past_0, x)
    y = Identity(present_0)
}
"""


def test_each_call_of_a_benchmark_is_a_first_call(write: Write, tmp_path: Path) -> None:
    session = Session(write(SUM), backends=[], states="detect")
    session.executable.save(tmp_path / "sum.byoc")
    x = np.array([1.0, 2.0], np.float32)
    opened = open_engine(EngineTask(tmp_path / "sum.byoc", "main", {"x": x}, 1))
    for _ in range(3):
        opened.call()
        np.testing.assert_array_equal(opened.read_outputs()[0], x)
    np.testing.assert_array_equal(session(x=x)["y"], x)
    np.testing.assert_array_equal(session(x=x)["y"], 2 * x)  # ordinary calls go on
