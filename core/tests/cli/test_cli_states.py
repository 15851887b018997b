"""``byoc compile --states``: pairs, detection, the list of states, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import byoc_core
import onnx
import pytest

from core.tests.cli.conftest import RunByoc
from core.tests.session.test_session_states import DECODER

pytestmark = pytest.mark.asks_for_plugins


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    path = tmp_path / "decoder.onnx"
    onnx.save_model(onnx.parser.parse_model(DECODER), path)
    return path


@pytest.mark.parametrize("choice", ["detect", "past_0=present_0"])
def test_compile_keeps_states(byoc: RunByoc, decoder: Path, choice: str) -> None:
    done = byoc("compile", decoder, "-o", "m.byoc", "--states", choice)
    assert (done.code, done.err) == (0, "")
    assert "\nstates of `main`:\n  past_0 -> present_0: float32[p, b, 2, 3] to [n+p, b, 2, 3], " in done.out
    assert [spec.name for spec in byoc_core.load("m.byoc").functions["main"].inputs] == ["x"]
    done = byoc("inspect", "m.byoc")
    assert "\nstates of `main`:\n  past_0 -> present_0: " in done.out
    (state,) = json.loads(byoc("inspect", "m.byoc", "--json").out)["functions"]["main"]["states"]
    assert state["before"] == {"name": "past_0", "dtype": "float32", "shape": ["p", "b", 2, 3]}
    assert (state["after"]["shape"], state["axis"]) == (["n+p", "b", 2, 3], 0)
    done = byoc("run", "m.byoc", "--random-inputs", "-o", "out.npz")
    assert (done.code, done.err) == (0, "")


MASKED = """
@R.function
def main(x: R.Tensor(("n", 3)), mask: R.Tensor(("n+p", 1)), log: R.Tensor(("p", 3))):
    R.func_attr({"input_names": ("x", "mask", "log"), "output_names": ("y", "new_log"),
                 "states": (("log", "new_log", 0),)})
    new_log = R.concat(log, x, axis=0)
    y = R.multiply(new_log, mask)
    return y, new_log
"""


@pytest.mark.parametrize(
    "command", [("run", "--random-inputs"), ("profile", "--calls", "2"), ("bench", "--starts", "1")]
)
def test_drawn_inputs_fit_a_first_call(byoc: RunByoc, command: tuple[str, ...]) -> None:
    """The mask has a number for each row: of a first call, without earlier rows."""
    byoc_core.build(byoc_core.parse(MASKED), []).save("m.byoc")
    name, *options = command
    done = byoc(name, "m.byoc", *options)
    assert (done.code, done.err) == (0, "")


def test_a_malformed_choice(byoc: RunByoc, decoder: Path) -> None:
    for choice in ("past_0", "=present_0"):
        done = byoc("compile", decoder, "-o", "m.byoc", "--states", choice)
        assert done.code == 1
        assert f"--states: is malformed; got '{choice}', expected INPUT=OUTPUT, or `detect` alone" in " ".join(
            done.err.split()
        )
    done = byoc("compile", decoder, "-o", "m.byoc", "--states", "past_0=future_0")
    assert done.code == 1
    assert "has no output `future_0` for a state" in " ".join(done.err.split())


def test_a_model_without_such_names(byoc: RunByoc, model: Path) -> None:
    done = byoc("compile", model, "-o", "m.byoc", "--states", "detect")
    assert done.code == 1
    assert "has no inputs and outputs named like past and present values" in " ".join(done.err.split())
