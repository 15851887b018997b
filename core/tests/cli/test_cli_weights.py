"""``byoc weights``: constants shared by several artifacts, and other values of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from byoc_core.artifact import list_weights, swap_weights
from byoc_core.runtime.array_files import save_arrays

from core.tests.artifact.conftest import make_executable
from core.tests.artifact.safetensors_file import encode_safetensors
from core.tests.cli.conftest import RunByoc


@pytest.fixture
def artifacts(tmp_path: Path) -> list[str]:
    paths = [tmp_path / name for name in ("first.byoc", "second.byoc")]
    for path in paths:
        make_executable(1000).save(path)
    return [str(path) for path in paths]


def test_constants_are_shown_shared_and_joined(byoc: RunByoc, artifacts: list[str], tmp_path: Path) -> None:
    done = byoc("weights", "show", *artifacts)
    assert done.code == 0
    assert "first.byoc: 2 constants, 8.0 kB" in done.out
    assert "together: 2 different constants, 8.0 kB; sharing saves 8.0 kB" in done.out
    folder = tmp_path / "release"
    done = byoc("weights", "share", *artifacts, "-o", str(folder))
    assert done.code == 0
    assert done.out.count("wrote") == 3
    assert byoc("run", str(folder / "second.byoc"), "--random-inputs", "--dim", "n=2").code == 0
    assert byoc("verify", str(folder / "second.byoc")).code == 0
    assert byoc("inspect", str(folder / "second.byoc")).code == 0
    joined = tmp_path / "joined.byoc"
    done = byoc("weights", "join", str(folder / "second.byoc"), "-o", str(joined))
    assert done.code == 0
    assert joined.read_bytes() == Path(artifacts[1]).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("share", "FIRST"), "--output: is missing"),
        (("share", "FIRST", "-o", "FOLDER", "--weights", "x"), "applies to `byoc weights join` only"),
        (("join", "FIRST", "FIRST", "-o", "joined.byoc"), "takes one artifact"),
        (("join", "absent.byoc", "-o", "joined.byoc"), "absent.byoc"),
    ],
)
def test_wrong_requests_are_named(
    byoc: RunByoc, artifacts: list[str], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    names = {"FIRST": artifacts[0], "FOLDER": str(tmp_path / "release")}
    done = byoc("weights", *(names.get(argument, argument) for argument in arguments))
    assert done.code != 0
    assert message in " ".join(done.err.split())


@pytest.fixture
def compiled(byoc: RunByoc, tmp_path: Path) -> Path:
    """Return an artifact of a model with a swappable weight and a scalar."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) { a = Mul(x, w) y = Add(a, s) }'
    )
    arrays = {"w": np.ones(3, np.float32), "s": np.array(1, np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    onnx.save_model(model, tmp_path / "m.onnx")
    path = tmp_path / "m.byoc"
    done = byoc("compile", tmp_path / "m.onnx", "-o", path, "--swappable-weights", "all", "--backend", "host", "-q")
    assert (done.code, done.err) == (0, "")
    return path


def test_weights_are_listed(byoc: RunByoc, compiled: Path, artifacts: list[str]) -> None:
    assert byoc("weights", "list", compiled).out == (
        "1 swappable weights, 12 bytes\n  w: float32[3]\n1 weights that are not swappable\n"
        "  s: float32[] is a scalar: only tensors are chosen without a name\n"
    )
    done = byoc("weights", "list", artifacts[0])
    assert done.out == "no swappable weights: the model was compiled without --swappable-weights\n"


def test_weights_are_swapped_from_both_kinds_of_files(byoc: RunByoc, compiled: Path, tmp_path: Path) -> None:
    new = {"w": np.array([1, 2, 3], np.float32)}
    save_arrays(tmp_path / "new.npz", new)
    (tmp_path / "new.safetensors").write_bytes(encode_safetensors(new))
    swap_weights(compiled, new, tmp_path / "wanted.byoc")
    wanted = (tmp_path / "wanted.byoc").read_bytes()
    before = compiled.read_bytes()
    for name in ("new.npz", "new.safetensors"):
        done = byoc("weights", "swap", compiled, tmp_path / name, "-o", tmp_path / "out.byoc")
        assert (done.code, done.err) == (0, "")
        assert "out.byoc" in done.out
        assert (tmp_path / "out.byoc").read_bytes() == wanted
    assert compiled.read_bytes() == before
    assert byoc("weights", "swap", compiled, tmp_path / "new.npz").code == 0
    assert compiled.read_bytes() == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("swap", "MODEL"), "byoc weights swap: takes an artifact and a file of tensors; got 1"),
        (("list", "MODEL", "MODEL"), "byoc weights list: takes one artifact; got 2"),
        (("swap", "MODEL", "absent.npz"), "absent.npz"),
        (("swap", "MODEL", "MODEL"), "is not an .npz file of arrays"),
        (("swap", "MODEL", "m.onnx"), "m.onnx`: is no file of tensors"),
        (("swap", "MODEL", "s.npz"), "weight `s` cannot be swapped: the weight is a scalar"),
        (("swap", "MODEL", "s.npz", "--weights", "x"), "--weights: applies to `byoc weights join` only"),
    ],
)
def test_wrong_swaps_are_named(
    byoc: RunByoc, compiled: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    np.savez(tmp_path / "s.npz", s=np.array(2, np.float32))
    before = compiled.read_bytes()
    paths = {"MODEL": compiled, "m.onnx": tmp_path / "m.onnx", "s.npz": tmp_path / "s.npz"}
    done = byoc("weights", *(paths.get(argument, argument) for argument in arguments))
    assert done.code == 1
    assert message in " ".join(done.err.split())
    assert compiled.read_bytes() == before


def test_an_adapter_is_merged(byoc: RunByoc, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 3] x) => (float[1, 2] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((3, 2), np.float32), "w"))
    onnx.save_model(model, tmp_path / "m.onnx")
    path, adapter, output = tmp_path / "m.byoc", tmp_path / "a.safetensors", tmp_path / "out.byoc"
    done = byoc("compile", tmp_path / "m.onnx", "-o", path, "--swappable-weights", "all", "--backend", "host", "-q")
    assert (done.code, done.err) == (0, "")
    a, b = np.array([[1, 2, 3]], np.float32), np.array([[1], [10]], np.float32)
    adapter.write_bytes(encode_safetensors({"p.lora_A.weight": a, "p.lora_B.weight": b}))
    done = byoc("weights", "merge-adapter", path, adapter, "-o", output, "--scale", "2", "--weight", "p=w")
    assert (done.code, done.err) == (0, "")
    swap_weights(path, {"w": 2 * (b @ a).T}, tmp_path / "wanted.byoc")
    assert output.read_bytes() == (tmp_path / "wanted.byoc").read_bytes()
    done = byoc("weights", "merge-adapter", path, adapter)
    assert (done.code, "has no scale" in done.err) == (1, True)
    done = byoc("weights", "merge-adapter", path, adapter, "--scale", "1", "--weight", "p")
    assert (done.code, "--weight: is malformed; got 'p', expected MODULE=WEIGHT" in done.err) == (1, True)
    done = byoc("weights", "swap", path, adapter, "--scale", "1")
    assert (done.code, "apply to `byoc weights merge-adapter` only" in done.err) == (1, True)


def test_names_of_weights_are_for_all_models_together(byoc: RunByoc, tmp_path: Path) -> None:
    for name, weights in (("p", ("w", "v")), ("q", ("w", "u"))):
        model = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> '
            f"g (float[3] x) => (float[3] y) {{ a = Mul(x, {weights[0]}) y = Add(a, {weights[1]}) }}"
        )
        ones = np.ones(3, np.float32)
        model.graph.initializer.extend(onnx.numpy_helper.from_array(ones, weight) for weight in weights)
        onnx.save_model(model, tmp_path / f"{name}.onnx")
    models = [f"{name}={tmp_path / name}.onnx" for name in ("p", "q")]
    path = tmp_path / "both.byoc"
    arguments = ("compile", *models, "-o", path, "--backend", "host", "-q")
    done = byoc(*arguments, "--swappable-weights", "v", "--swappable-weights", "w*")
    assert (done.code, done.err) == (0, "")
    assert [weight.name for weight in list_weights(path).weights] == ["w", "v"]
    assert [weight.name for weight in list_weights(path).fixed] == ["u"]
    assert byoc(*arguments, "--swappable-weights", "u").code == 0
    assert [weight.name for weight in list_weights(path).weights] == ["u"]
    done = byoc(*arguments, "--swappable-weights", "u", "--swappable-weights", "wx")
    assert (done.code, "--swappable-weights: no model has a weight `wx`" in done.err) == (1, True)
