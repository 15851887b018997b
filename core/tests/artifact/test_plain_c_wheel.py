"""Exported wheels: metadata, record, bytes, and the function in a Python without byoc."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from byoc_core.artifact import Executable
from byoc_core.dims import parse_dim
from byoc_core.dtypes import all_dtypes
from byoc_core.errors import CodegenError, OptionsError
from byoc_core.native.elf import read_dynamic_names
from byoc_core.native.toolchain import BuildOptions, Toolchain
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import Signature, TensorSpec
from byoc_core.vm import Builtin, Ret, VMFunction
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from core.tests.artifact.exported_model import builtin, c_module, copies, executable_of, extern, shift, tensor
from core.tests.artifact.test_plain_c_sizes import adding, filling, two_steps

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler: apt-get install gcc"),
]

HEAD = """
import importlib, json, sys
import numpy as np

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0].startswith("byoc"):
            raise ImportError(f"{name} is not needed here")

sys.meta_path.insert(0, Refuse())
def error(*arrays):
    try:
        model.run(*arrays)
    except Exception as problem:
        return [type(problem).__name__, str(problem)]
"""

Use = Callable[[Path, str, str], Any]


@pytest.fixture
def use(tmp_path: Path) -> Use:
    """Return a function: unpack a wheel, run a script with the module `model` in a fresh process, return its answer."""

    def run(wheel: Path, name: str, script: str) -> Any:
        site = tmp_path / f"site_{name}"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        text = f"{HEAD}sys.path.insert(0, sys.argv[1])\nmodel = importlib.import_module({name!r})\n{script}"
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", text, site],
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def adder() -> Executable:
    """Return y = x + 2."""
    return executable_of((two_steps(),), [shift("one", 1)])


def test_the_function_takes_and_returns_arrays(tmp_path: Path, use: Use) -> None:
    wheel = adder().export_wheel(tmp_path, name="adder")
    script = """
found = [model.run(np.arange(size, dtype="float32")).tolist() for size in (3, 0, 100, 3)]
strided = model.run(np.arange(8, dtype="float32")[::-2])
print(json.dumps([found, strided.tolist(), str(strided.dtype), model.__all__]))
"""
    found, strided, dtype, names = use(wheel, "adder", script)
    assert found == [[2.0, 3.0, 4.0], [], [float(k + 2) for k in range(100)], [2.0, 3.0, 4.0]]
    assert (strided, dtype, names) == ([9.0, 7.0, 5.0, 3.0], "float32", ["run"])


def test_wrong_arguments_are_errors_of_python(tmp_path: Path, use: Use) -> None:
    wheel = adder().export_wheel(tmp_path, name="adder")
    script = """
zeros = np.zeros
print(json.dumps([error(zeros(3)), error(zeros((3, 1), "float32")), error(zeros(13, "float32")), error(),
                  error([1, 2]), error(zeros(3, ">f4"))]))
"""
    assert use(wheel, "adder", script) == [
        ["TypeError", "input `x`: got float64, expected float32"],
        ["ValueError", "input `x`: got 2 axes, expected 1"],
        ["ValueError", "a value has no meaning for an op"],
        ["TypeError", "run() missing 1 required positional argument: 'x'"],
        ["TypeError", "input `x`: got int64, expected float32"],
        ["TypeError", "input `x`: got >f4, expected float32"],
    ]


def test_sizes_come_from_the_shapes(tmp_path: Path, use: Use) -> None:
    dim = parse_dim("broadcast(m, n)")
    wheel = executable_of((adding(dim),), [filling(dim)]).export_wheel(tmp_path, name="adding")
    script = """
def sizes(n, m):
    arrays = np.zeros(n, "float32"), np.zeros(m, "float32")
    return error(*arrays) or model.run(*arrays).shape
print(json.dumps([sizes(3, 3), sizes(1, 4), sizes(4, 1), sizes(0, 1), sizes(3, 4)]))
"""
    *good, bad = use(wheel, "adding", script)
    assert good == [[3], [4], [4], [0]]
    assert bad == ["ValueError", "sizes 4 and 3 do not broadcast"]


def test_sizes_are_solved_and_compared(tmp_path: Path, use: Use) -> None:
    shapes = [("n", "m"), (parse_dim("2*n+1"), parse_dim("n+k")), (7, "k")]
    specs = [tensor(f"x{k}", *shape, dtype="int16") for k, shape in enumerate(shapes)]
    results = [tensor(f"y{k}", *shape, dtype="int16") for k, shape in enumerate(shapes)]
    wheel = executable_of((copies("main", specs, results),)).export_wheel(tmp_path, name="sizes")
    script = """
def arrays(*shapes):
    return [np.full(shape, 3, "int16") for shape in shapes]
right = [result.shape for result in model.run(*arrays((2, 5), (5, 6), (7, 4)))]
wrong = [error(*arrays(*shapes)) for shapes in (
    ((2, 5), (4, 6), (7, 4)), ((2, 5), (5, 1), (7, 4)), ((2, 5), (5, 6), (8, 4)), ((2, 5), (5, 6), (7, 5)))]
print(json.dumps([right, wrong]))
"""
    right, wrong = use(wheel, "sizes", script)
    assert right == [[2, 5], [5, 6], [7, 4]]
    assert [kind for kind, _ in wrong] == ["ValueError"] * 4
    assert wrong[0][1] == "input `x1`: got the shape (4, 6), expected (5, 6)"
    assert wrong[1][1] == "input `x1`, axis 1: impossible size 1"
    assert wrong[2][1] == "input `x2`: got the shape (8, 4), expected (7, 4)"
    assert wrong[3][1] == "input `x2`: got the shape (7, 5), expected (7, 4)"


def test_every_dtype_passes(tmp_path: Path, use: Use) -> None:
    specs = [tensor(f"x_{dtype}", 2, dtype=dtype) for dtype in all_dtypes()]
    results = [tensor(f"y_{dtype}", 2, dtype=dtype) for dtype in all_dtypes()]
    wheel = executable_of((copies("main", specs, results),)).export_wheel(tmp_path, name="dtypes")
    script = (
        f"NAMES = {all_dtypes()!r}"
        """
import ml_dtypes
arrays = [np.array([0, 1]).astype(name) for name in NAMES]
results = model.run(*arrays)
print(json.dumps([[str(result.dtype), result.tobytes() == array.tobytes()] for result, array in zip(results, arrays)]))
"""
    )
    assert use(wheel, "dtypes", script) == [[dtype, True] for dtype in all_dtypes()]
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(archive.read("dtypes-0.1.dist-info/METADATA").decode())
    assert metadata.get_all("Requires-Dist") == ["numpy>=1.24", "ml_dtypes"]


def test_scalars_nothing_and_several_results(tmp_path: Path, use: Use) -> None:
    scalar = executable_of((copies("main", [tensor("x", dtype="int64")], [tensor("y", dtype="int64")]),))
    assert use(
        scalar.export_wheel(tmp_path, name="scalar"),
        "scalar",
        "result = model.run(7)\nprint(json.dumps([int(result), result.shape]))",
    ) == [7, []]
    code = (builtin(Builtin.ZERO, (), 0), builtin(Builtin.INCREMENT, (), 0), Ret((0,)))
    constant = executable_of((VMFunction("main", (), (tensor("y", dtype="int64"),), (), (), (), (), code),))
    assert use(constant.export_wheel(tmp_path, name="constant"), "constant", "print(json.dumps(int(model.run())))") == 1


def test_inputs_have_any_names(tmp_path: Path, use: Use) -> None:
    names = [
        "lambda",
        "in",
        "None",
        "np",
        "max",
        "broadcast",
        "_run",
        "_array",
        "_input_0",
        "_nbytes",
        "é",
        "a b",
        "1",
        "n",
    ]
    names += ["nbytes", "status", "ValueError", "ml_dtypes", "_size_0", "_output_0", "self", "int", "print"]
    symbols = ["nbytes", "n", "status", "pointer", "np", "é"]
    specs = [tensor(name, symbols[k % len(symbols)], dtype="int32") for k, name in enumerate(names)]
    results = [TensorSpec(f"y{k}", "int32", spec.shape) for k, spec in enumerate(specs)]
    wheel = executable_of((copies("main", specs, results),)).export_wheel(tmp_path, name="names")
    script = f"""
arrays = [np.full(2 + k % {len(symbols)}, k, "int32") for k in range({len(names)})]
results = model.run(*arrays)
print(json.dumps(all(np.array_equal(a, b) for a, b in zip(arrays, results))))
"""
    assert use(wheel, "names", script) is True


def test_threads_run_at_once_with_memory_of_their_own(tmp_path: Path, use: Use) -> None:
    wheel = adder().export_wheel(tmp_path, name="adder")
    script = """
from concurrent.futures import ThreadPoolExecutor
def work(seed):
    return sum(bool((model.run(np.full(size, seed, "float32")) != seed + 2).any()) for size in range(14, 400, 3))
with ThreadPoolExecutor(8) as pool:
    print(json.dumps(sum(pool.map(work, range(8)))))
"""
    assert use(wheel, "adder", script) == 0


def test_the_record_and_the_metadata_are_right(tmp_path: Path) -> None:
    wheel = adder().export_wheel(tmp_path / "new" / "folder", name="My__Adder", version="1.0-1")
    name, version, build, tags = parse_wheel_filename(wheel.name)
    assert (name, str(version), build) == ("my-adder", "1.0.post1", ())
    assert {(tag.interpreter, tag.abi) for tag in tags} == {("py3", "none")}
    assert {tag.platform for tag in tags} <= {tag.platform for tag in sys_tags()} | {f"linux_{os.uname().machine}"}
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        files = {info.filename: archive.read(info) for info in archive.infolist()}
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    info = "my_adder-1.0.post1.dist-info"
    assert {*files} == {
        *("My__Adder/__init__.py", "My__Adder/_My__Adder.so", "My__Adder/py.typed"),
        *(f"{info}/{file}" for file in ("METADATA", "WHEEL", "RECORD")),
    }
    assert modes["My__Adder/_My__Adder.so"] & 0o111
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(files[f"{info}/RECORD"].decode()))}
    assert rows.pop(f"{info}/RECORD") == ["", ""]
    expected = {
        file: [
            f"sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()}",
            str(len(data)),
        ]
        for file, data in files.items()
        if file != f"{info}/RECORD"
    }
    assert rows == expected
    metadata = Parser().parsestr(files[f"{info}/METADATA"].decode())
    assert (metadata["Name"], metadata["Version"], metadata["Requires-Dist"]) == (
        "My__Adder",
        "1.0.post1",
        "numpy>=1.24",
    )


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    first, second = (adder().export_wheel(tmp_path / folder, name="adder") for folder in ("a", "b"))
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.skipif(find_spec("pip") is None, reason="could not import 'pip'")
def test_pip_installs_and_removes_the_wheel(tmp_path: Path) -> None:
    wheel = adder().export_wheel(tmp_path, name="free_adder")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"

    def pip(*arguments: str | Path) -> str:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    pip("install", "--no-index", "--no-deps", wheel)
    assert json.loads(pip("list", "--format", "json")) == [{"name": "free_adder", "version": "0.1"}]
    shown = pip("show", "-f", "free_adder")
    assert "free_adder/_free_adder.so" in shown
    pip("uninstall", "-y", "free_adder")
    assert not list((tmp_path / "env").rglob("free_adder*"))


@pytest.mark.parametrize("name", ["lambda", "numpy", "json", "adder_", "None", "code"])
def test_names_hiding_modules_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionsError) as caught:
        adder().export_wheel(tmp_path, name=name)
    assert str(caught.value) == f"option `name`: is not usable as name of a package; got {name!r}"
    assert not list(tmp_path.iterdir())


def test_impossible_versions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionsError) as caught:
        adder().export_wheel(tmp_path, version="new")
    assert str(caught.value) == "option `version`: is not a version of a package; got 'new'"


def test_a_wheel_needs_the_function_main(tmp_path: Path) -> None:
    with pytest.raises(CodegenError) as caught:
        executable_of((two_steps("other"),), [shift("one", 1)]).export_wheel(tmp_path)
    assert str(caught.value) == "executable: has no function `main`; got other"


def test_a_wheel_is_made_on_its_machine(tmp_path: Path) -> None:
    spec = (tensor("x", "n"),)
    raw = "BYOC_EXPORT int32_t f_(const float *x, float *out, int64_t dim_n) { return 0; }"
    here = c_module("f", raw, Signature(spec, spec))
    there = CSourceModule(here.get_source(), here.signatures, options=BuildOptions(target="aarch64-linux-gnu"))
    main = VMFunction("main", spec, (tensor("y", "n"),), (), (), (), (), (extern(0, (0,), (1,)), Ret((1,))))
    with pytest.raises(CodegenError) as caught:
        executable_of((main,), [there]).export_wheel(tmp_path)
    assert str(caught.value) == "executable: is compiled for another machine; a wheel is made on the machine itself"
    assert not list(tmp_path.iterdir())


def test_the_library_needs_the_c_library_alone(tmp_path: Path) -> None:
    wheel = adder().export_wheel(tmp_path, name="adder")
    with zipfile.ZipFile(wheel) as archive:
        names = read_dynamic_names(archive.read("adder/_adder.so"))
    assert (names is not None) == (sys.platform == "linux")
    assert {name.partition(".so")[0] for name in (names.needed if names else ())} <= {"libc", "libm"}
