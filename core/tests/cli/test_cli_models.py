"""``compile``, ``run``, ``inspect``, ``verify`` and ``demo``, seen by the user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.dtypes import to_numpy
from onnx import TensorProto, helper, numpy_helper

from core.tests.cli.conftest import RunByoc

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]


def test_compile_says_who_took_what_and_what_it_wrote(byoc: RunByoc, model: Path) -> None:
    done = byoc("compile", model, "-o", "m.byoc")
    assert (done.code, done.err) == (0, "")
    size = Path("m.byoc").stat().st_size
    assert "host" in done.out
    assert done.out.endswith(f"\nwrote m.byoc ({size:,} bytes)\n")


def test_compile_twice_gives_the_same_bytes(byoc: RunByoc, model: Path) -> None:
    for name in ("a.byoc", "b.byoc"):
        assert byoc("compile", model, "-o", name).code == 0
    assert Path("a.byoc").read_bytes() == Path("b.byoc").read_bytes()


def test_run_gives_what_the_model_computes(byoc: RunByoc, artifact: Path) -> None:
    generator = np.random.default_rng(1)
    arrays = {"x": generator.normal(size=(3, 16)), "m": generator.normal(size=(3, 8))}
    x, m = (arrays[name].astype("float32") for name in ("x", "m"))
    np.save("x.npy", x)
    np.savez("m.npz", only=m)
    Path("x.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    np.savez("both.npz", x=x, m=m, other=m)
    results = []
    for inputs in (("-i", "x=x.npy", "-i", "m=m.npz"), ("--input", "x=x.pb", "--input", "m=m.npz"), ("-i", "both.npz")):
        done = byoc("run", artifact, *inputs, "-o", "out.npz")
        assert (done.code, done.err) == (0, "")
        assert "wrote out.npz" in done.out
        with np.load("out.npz") as saved:
            results.append((saved["y"], saved["z"]))
            np.testing.assert_array_equal(saved["z"], saved["y"] + m)
    for y, z in results[1:]:
        np.testing.assert_array_equal(y, results[0][0])
        np.testing.assert_array_equal(z, results[0][1])


def test_run_draws_inputs_by_seed_and_sizes(byoc: RunByoc, artifact: Path) -> None:
    def outputs(*arguments: object) -> Any:
        done = byoc("run", artifact, "--random-inputs", "-o", "out.npz", *arguments)
        assert (done.code, done.err) == (0, "")
        return dict(np.load("out.npz")), done.out

    one, text = outputs()
    assert one["y"].shape == (1, 8)
    assert ", with n=1\n" in text
    five, text = outputs("--dim", "n=5", "--seed", 3)
    assert ", with n=5\n" in text
    lines = [line.split() for line in text.splitlines()]
    y = five["y"]
    assert ["y", "(5,", "8)", "float32", f"{y.min():.6g}", f"{y.astype(float).mean():.6g}", f"{y.max():.6g}"] in lines
    np.testing.assert_array_equal(outputs("--dim", "n=5", "--seed", 3)[0]["z"], five["z"])
    assert (outputs("--dim", "n=5", "--seed", 4)[0]["z"] != five["z"]).any()
    np.save("x.npy", np.zeros((4, 16), "float32"))
    filled, text = outputs("--input", "x=x.npy")
    assert filled["z"].shape == (4, 8)
    assert "drawn at random with seed 0: m (float32 [4, 8], standard normal)\n" in text


DRAWING = "To draw inputs at random: --random NAME for a single input, --random-inputs for all missing inputs."


def test_run_makes_up_no_input_unasked(byoc: RunByoc, artifact: Path) -> None:
    np.save("x.npy", np.zeros((4, 16), "float32"))
    refused = {
        (): f"error: --input: lacks `x`, `m`; expected --input x=FILE --input m=FILE. {DRAWING}\n",
        ("--input", "x=x.npy"): f"error: --input: lacks `m`; expected --input m=FILE. {DRAWING}\n",
        ("--random", "m"): f"error: --input: lacks `x`; expected --input x=FILE. {DRAWING}\n",
        ("--random", "mm"): "error: --random mm: names no input of the function; expected x, m. Did you mean 'm'?\n",
        ("--random", "x", "--input", "x=x.npy"): "error: --random x: names an input also given by --input\n",
    }
    for arguments, text in refused.items():
        done = byoc("run", artifact, *arguments)
        assert (done.code, done.out, done.err) == (1, "", text)
    said = byoc("run", artifact, "--random-inputs", "--dim", "n=2", "--seed", 5).out
    assert (
        "drawn at random with seed 5: x (float32 [2, 16], standard normal), m (float32 [2, 8], standard normal)\n"
        in said
    )
    for asked in (("--random", "m"), ("--random-inputs",)):
        said = byoc("run", artifact, "--input", "x=x.npy", *asked).out
        assert "drawn at random with seed 0: m (float32 [4, 8], standard normal)\n" in said


@pytest.mark.parametrize("name", ["a.onnx", "b.ONNX", "weights.bin", "notes.txt"])
def test_compile_writes_over_nothing_but_artifacts(byoc: RunByoc, model: Path, name: str) -> None:
    if not name.lower().endswith(".onnx"):
        Path(name).write_bytes(b"somebody's")
    done = byoc("compile", model, "-o", name)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error: --output: `{name}` ")
    assert not Path(name).exists() or Path(name).read_bytes() == b"somebody's"
    Path("empty.byoc").touch()
    assert byoc("compile", model, "-o", "empty.byoc").code == 0
    assert byoc("compile", model, "-o", "empty.byoc").code == 0


@pytest.mark.parametrize(
    ("name", "dtype"), [("bfloat16", TensorProto.BFLOAT16), ("float8_e4m3fn", TensorProto.FLOAT8E4M3FN)]
)
def test_run_reads_types_that_numpy_lacks(byoc: RunByoc, name: str, dtype: int) -> None:
    info = [helper.make_tensor_value_info(value, dtype, [4]) for value in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", info[:1], info[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    Path("t.onnx").write_bytes(made.SerializeToString())
    array = np.array([1, -2, 0.5, 4]).astype(to_numpy(name))
    np.save("x.npy", array)
    np.savez("x.npz", x=array)
    assert np.load("x.npy").dtype.kind == "V", "numpy forgets the type"
    for given in ("x=x.npy", "x=x.npz", "x.npz"):
        done = byoc("run", "t.onnx", "--input", given, "-o", "out.npz")
        assert (done.code, done.err) == (0, "")
        np.testing.assert_array_equal(np.load("out.npz")["y"], array.astype("float32"))


def test_backends_may_be_separated_by_commas(byoc: RunByoc, model: Path) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "-b", "host, host").code == 0
    done = byoc("compile", model, "-o", "m.byoc", "-b", "host,hst")
    assert (done.code, done.err) == (
        1,
        "error: byoc.backends: backend `hst` is not installed; installed: host. Did you mean 'host'?\n",
    )


def test_run_takes_a_model_and_compiles_it_first(byoc: RunByoc, model: Path) -> None:
    done = byoc("run", model, "--random-inputs", "--dim", "n=2")
    assert (done.code, done.err) == (0, "")
    assert "(2, 8)" in done.out


def test_inspect_shows_the_interface_and_the_needs(byoc: RunByoc, artifact: Path) -> None:
    done = byoc("inspect", artifact, "--program", "--members", "--dim", "n=7")
    assert (done.code, done.err) == (0, "")
    words = [line.split() for line in done.out.splitlines()]
    assert ["main", "in", "x", "float32", "(n,", "16)"] in words
    assert ["out", "z", "float32", "(n,", "8)"] in words
    assert ["native", "code", "no"] in words
    (row,) = (row for row in words if row[:1] == ["main"] and len(row) == 7)
    constants, modules, needed = (int(row[column].replace(",", "")) for column in (1, 2, 6))
    assert row[3:6] == ["287", "672", "448"]
    assert needed == constants + modules + 287 + 672 + 448
    assert any(row[:2] == ["graph", "byoc-core"] and row[-1] == "yes" for row in words)
    assert any(row[:1] == ["manifest.json"] for row in words)
    assert "function main(" in done.out


def test_verify_reads_every_byte(byoc: RunByoc, artifact: Path) -> None:
    done = byoc("verify", artifact)
    assert (done.code, done.err) == (0, "")
    size = artifact.stat().st_size
    assert done.out == (
        f"m.byoc: all {size:,} bytes match the digests\n"
        "not checked: the author: anybody can write an artifact with matching digests\n"
        "not checked: later changes: constants are mapped from the file while the artifact is loaded\n"
    )
    data = bytearray(artifact.read_bytes())
    data[len(data) // 2] ^= 1
    artifact.write_bytes(data)
    damaged = byoc("verify", artifact)
    assert (damaged.code, damaged.out) == (1, "")
    assert damaged.err.startswith("error: artifact `m.byoc`")


def test_demo_agrees_with_the_host(byoc: RunByoc) -> None:
    done = byoc("demo")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("backends: none able to compile here; then the host\n")
    assert ["none", "0.0%", "0"] in [line.split() for line in done.out.splitlines()]


USER_ERRORS = {
    "run absent.byoc": "absent.byoc: No such file or directory",
    "run .": ".: Is a directory",
    "compile m.onnx -o absent/m.byoc": "--output: the folder `absent` does not exist",
    "compile m.onnx -o m.onnx": "--output: `m.onnx` is the input model",
    "compile m.byoc -o x.byoc": "file `m.byoc`: is compiled already; expected an ONNX model",
    "compile m.onnx -o x.byoc --backend hst": (
        "byoc.backends: backend `hst` is not installed; installed: host. Did you mean 'host'?"
    ),
    "compile m.onnx -o x.byoc --option fast": "--option: is malformed; got 'fast', expected BACKEND.NAME=VALUE",
    "run m.onnx --option host.fast=1": "options.host.fast: is unknown; expected no option",
    "run m.byoc --strict": "--strict: does not apply to the compiled model `m.byoc`",
    "run m.byoc --backend host": "--backend and --option: do not apply to the compiled model `m.byoc`",
    "explain m.byoc --policy cost": "--policy: does not apply to the compiled model `m.byoc`",
    "explain m.byoc --backend host": "--backend and --option: do not apply to the compiled model `m.byoc`",
    "run m.byoc --function man": "executable: has no function `man`; expected main. Did you mean 'main'?",
    "run m.byoc --dim n": "--dim: is malformed; got 'n', expected NAME=SIZE",
    "run m.byoc --random-inputs --dim k=3": "--dim k: is not a symbolic size of the inputs; expected n",
    "run m.byoc --input xx=x.npy": "--input xx=x.npy: names no input of the function; expected x=FILE or m=FILE. Did "
    "you mean 'x'?",
    "run m.byoc --input x.npy": "--input x.npy: is malformed; expected x=FILE or m=FILE",
    "run m.byoc --input x=absent.npy": "absent.npy: No such file or directory",
    "run m.byoc --input x=m.onnx": (
        "file `m.onnx`: is not an array file, is truncated, or holds Python objects; "
        "expected a .npy, .npz or .pb file of numbers"
    ),
    "run m.byoc --input x=": "--input x=: names no file; expected x=FILE or m=FILE",
    "run m.byoc --input X=x.npy": "--input X=x.npy: names no input of the function; expected x=FILE or m=FILE. Did "
    "you mean 'x'?",
    "run m.byoc --input x=3.npy --input x=3.npy --random-inputs": "--input x=3.npy: gives input `x` a second time",
    "run m.byoc --input x=64.npy --random-inputs": (
        "function `main`, input 0 `x`: wrong dtype; got float64, expected float32"
    ),
    "run m.byoc --input x=wide.npy --random-inputs": (
        "function `main`, input 0 `x`: axis 1 has the wrong size; got [3, 17], expected [n, 16] with n = 3"
    ),
    "run m.byoc --input x=flat.npy --random-inputs": (
        "function `main`, input 0 `x`: wrong rank; got 1, shape [16], expected 2, shape [n, 16]"
    ),
    "run m.byoc --dim n=4 --input x=3.npy --random-inputs": (
        "--dim n: differs from the size of the given inputs; got 4, expected 3"
    ),
    "run m.byoc --random-inputs --dim n=99999999999999999999": (
        "input `x`: exceeds the largest possible array; got shape [99999999999999999999, 16]"
    ),
    "run m.byoc -o .": "--output: `.` is a folder",
    "compile m.onnx -o .": "--output: `.` is a folder",
    "run m.byoc -o pipe": "--output: `pipe` exists and is not a regular file",
    "compile m.onnx -o pipe": "--output: `pipe` exists and is not a regular file",
    "compile two.npz -o x.byoc": "file `two.npz`: is a zip archive; expected an ONNX model",
    "run two.npz": "artifact `two.npz`: is a zip archive, but not a byoc artifact. Artifacts are made by "
    "`byoc compile` or `Executable.save`.",
    "run m.byoc --input x=text.pb": "file `text.pb`: is not an ONNX tensor",
    "run m.byoc --input x=text.npz": "file `text.npz`: is not an .npz file of numbers",
    "run m.byoc --input two.npz": "--input two.npz: names no input of the function; got p, q, expected x, m",
    "run m.byoc --input x=two.npz": "file `two.npz`: has no array `x`; expected p, q",
    "verify m.onnx": "artifact `m.onnx`: is not a byoc artifact. Artifacts are made by `byoc compile` or "
    "`Executable.save`.",
}


@pytest.mark.parametrize("command", USER_ERRORS)
def test_the_users_errors_are_one_paragraph_and_exit_code_1(byoc: RunByoc, artifact: Path, command: str) -> None:
    Path("text.pb").write_text("this is text")
    Path("text.npz").write_text("this is text")
    np.savez("two.npz", p=np.zeros(1), q=np.zeros(1))
    arrays = {"3": np.zeros((3, 16), "f4"), "64": np.zeros((3, 16)), "wide": np.zeros((3, 17), "f4")}
    for name, array in {**arrays, "flat": np.zeros(16, "f4")}.items():
        np.save(f"{name}.npy", array)
    if hasattr(os, "mkfifo"):
        os.mkfifo("pipe")
    done = byoc(*command.split())
    assert (done.code, done.out, done.err) == (1, "", f"error: {USER_ERRORS[command]}\n")
    assert not Path("x.byoc").exists()


def test_an_option_may_be_json(byoc: RunByoc, model: Path) -> None:
    done = byoc("run", model, "--option", "a.b=[1")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: --option a.b: is malformed JSON: ")
    assert done.err.endswith("; got '[1'\n")


def test_fallback_error_and_warning_name_the_ops(byoc: RunByoc, model: Path) -> None:
    # Asking nobody but the host is no fallback.
    assert byoc("compile", model, "-o", "x.byoc", "--fallback", "error").code == 0
    assert byoc("compile", model, "-o", "x.byoc", "--fallback", "sometimes").code == 2
