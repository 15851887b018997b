"""``byoc compile`` with several models: one artifact with a function for each."""

from __future__ import annotations

from pathlib import Path

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.artifact import inspect

from core.tests.cli.conftest import RunByoc

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3)


def write_model(path: Path, last: str, size: str) -> Path:
    """Write a model with the same weights as others, and another end."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{size}, 4] x) => (float[{size}, 3] y) {{ {last} }}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHTS, "w"))
    onnx.save(model, str(path))
    return path


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    first = write_model(tmp_path / "first.onnx", "h = MatMul(x, w) y = Relu(h)", "n")
    return first, write_model(tmp_path / "second.onnx", "h = MatMul(x, w) y = Neg(h)", "m")


def test_models_become_functions_with_common_weights(byoc: RunByoc, models: tuple[Path, Path], tmp_path: Path) -> None:
    output = tmp_path / "both.byoc"
    done = byoc("compile", f"encode={models[0]}", f"decode={models[1]}", "-o", str(output), "--backend", "host")
    assert done.code == 0, done.err
    found = inspect(output)
    assert list(found.functions) == ["encode", "decode"]
    assert found.constants_nbytes == WEIGHTS.nbytes  # stored once
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    for function, expected in (("encode", np.maximum(x @ WEIGHTS, 0)), ("decode", -(x @ WEIGHTS))):
        (result,) = byoc_core.Session(output, function=function).run(None, {"x": x})
        np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert byoc("run", str(output), "--function", "decode", "--random-inputs", "--dim", "m=2").code == 0


def test_states_belong_to_the_models_with_their_inputs(
    byoc: RunByoc, models: tuple[Path, Path], tmp_path: Path
) -> None:
    journal = tmp_path / "journal.onnx"
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x, float[p] past_0) => (float[q] present_0)'
            " { present_0 = Concat<axis = 0>(past_0, x) }"
        ),
        str(journal),
    )
    output = tmp_path / "both.byoc"
    texts = (f"encode={models[0]}", f"decode={journal}", "-o", str(output), "--backend", "host")
    for states in ("detect", "past_0=present_0"):
        done = byoc("compile", *texts, "--states", states)
        assert done.code == 0, done.err
        session = byoc_core.Session(output, function="decode")
        session.run(None, {"x": np.ones(3, np.float32)})
        assert session.state.length == 3
    assert "no model has the input `past_1`" in byoc("compile", *texts, "--states", "past_1=present_0").err
    done = byoc("compile", f"a={models[0]}", f"b={models[1]}", "-o", str(output), "--states", "detect")
    assert "no model has states" in done.err


def test_a_single_model_keeps_its_name(byoc: RunByoc, models: tuple[Path, Path], tmp_path: Path) -> None:
    renamed = models[0].rename(tmp_path / "n=4.onnx")
    output = tmp_path / "one.byoc"
    assert byoc("compile", str(renamed), "-o", str(output), "--backend", "host").code == 0
    assert list(inspect(output).functions) == ["main"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("FIRST", "SECOND"), "has no name; got"),
        (("a=FIRST", "SECOND"), "has no name; got"),
        (("a b=FIRST", "c=SECOND"), "has no name; got"),
        (("a=FIRST", "a=SECOND"), "two models are called `a`"),
        (("a=FIRST", "b=absent.onnx"), "absent.onnx"),
    ],
)
def test_wrong_models_are_named(
    byoc: RunByoc, models: tuple[Path, Path], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    texts = [text.replace("FIRST", str(models[0])).replace("SECOND", str(models[1])) for text in arguments]
    done = byoc("compile", *texts, "-o", str(tmp_path / "both.byoc"))
    assert done.code != 0
    assert message in " ".join(done.err.split())
    assert not (tmp_path / "both.byoc").exists()
