"""Exported C in other programs: several models, C and C++, static libraries, build files, threads, symbols."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.errors import ByocError, CallError, ToolchainError
from byoc_core.native.toolchain import Toolchain
from byoc_core.vm import Builtin, Ret, VMFunction

from core.tests.artifact.exported_model import builtin, copies, executable_of, extern, shift, tensor
from core.tests.artifact.test_library_program import TRUE, TWO, WEIGHT, caller, halves, loop
from core.tests.artifact.test_plain_c_sizes import two_steps
from core.tests.fresh_process import answer_of

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler: apt-get install gcc")

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all"


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


COMPILERS = [pytest.param(name, marks=needs(name)) for name in ("gcc", "clang")]


def run(folder: Path, *command: str | Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def library_functions() -> Executable:
    return executable_of((loop(), halves(), caller()), [shift("one", 1), shift("ten", 10)], [TRUE, WEIGHT, TWO])


def model(by: float, symbol: str = "one") -> Executable:
    """Return y = x + 2 * by, by a function with a constant."""
    return executable_of((two_steps(),), [shift(symbol, by)])


TWO_MODELS = """\
#include <stdio.h>
#include "first.h"
#include "second.h"

int main(void) {
  static _Alignas(64) unsigned char workspace[FIRST_WORKSPACE_SIZE + SECOND_WORKSPACE_SIZE];
  float x[3] = {1, 2, 3}, y[3], z[3];
  const struct first_inputs a = {x, 3};
  const struct first_outputs b = {y};
  const struct second_inputs c = {y, 3};
  const struct second_outputs d = {z};
  const int status = first_run(&a, &b, workspace) + second_run(&c, &d, workspace);
  printf("%d %g %g %g\\n", status, z[0], z[1], z[2]);
  return 0;
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("constants", ["array", "object"])
def test_two_models_in_one_program(tmp_path: Path, compiler: str, constants: str) -> None:
    for name, by in (("first", 1), ("second", 10)):
        model(by).export_c(tmp_path, name=name, max_sizes={"n": 4}, constants=constants)
    (tmp_path / "main.c").write_text(TWO_MODELS)
    sources = sorted(
        {path.name for path in tmp_path.glob("*.c")} - {"first_test_constants.c", "second_test_constants.c"}
    )
    assert {"first.c", "second.c", "first_module0.c", "second_module0.c", "second_constants.c"} <= {*sources}
    for option in ("-O0", "-O2"):
        run(tmp_path, compiler, "-std=c11", option, *WARNINGS, *sources, "-lm", "-o", "both")
        assert run(tmp_path, tmp_path / "both") == "0 23 24 25\n"
    if compiler == "gcc":
        run(tmp_path, compiler, "-std=c11", "-O1", *SANITIZERS.split(), *sources, "-lm", "-o", "both")
        assert run(tmp_path, tmp_path / "both") == "0 23 24 25\n"


THREADS = """\
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
extern "C" {
#include "first.h"
}
#include "second.h"

static int wrong(float start) {
  int count = 0;
  alignas(FIRST_WORKSPACE_ALIGNMENT) unsigned char workspace[FIRST_WORKSPACE_SIZE];
  for (int round = 0; round < 2000; ++round) {
    float x[4] = {start, start + 1, start + 2, start + 3}, y[4];
    first_inputs inputs = {};
    inputs.x = x, inputs.n = 4;
    first_outputs outputs = {};
    outputs.y = y;
    if (first_run(&inputs, &outputs, workspace) != FIRST_OK) ++count;
    for (int i = 0; i < 4; ++i) count += y[i] != x[i] + 2;
  }
  return count;
}

int main() {
  std::vector<int> found(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([i, &found] { found[i] = wrong(100.0f * i); });
  for (auto &thread : threads) thread.join();
  std::printf("%d %s %s\\n", found[0] + found[1] + found[2] + found[3], first_input_info[0].name,
              second_output_info[0].dtype);
  return 0;
}
"""


@pytest.mark.parametrize("compiler", [pytest.param(name, marks=needs(name)) for name in ("g++", "clang++")])
def test_a_cpp_program_with_threads(tmp_path: Path, compiler: str) -> None:
    for name, by in (("first", 1), ("second", 10)):
        model(by).export_archive(tmp_path / f"lib{name}.a", name=name, max_sizes={"n": 4})
    (tmp_path / "main.cpp").write_text(THREADS)
    command = (
        compiler,
        "-std=c++17",
        *WARNINGS,
        "main.cpp",
        "libfirst.a",
        "libsecond.a",
        "-lm",
        "-pthread",
        "-o",
        "main",
    )
    run(tmp_path, *command)
    assert run(tmp_path, tmp_path / "main") == "0 x float32\n"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_test_program_runs_with_all_warnings_and_sanitizers(tmp_path: Path, compiler: str) -> None:
    for name, constants in (("arrays", "array"), ("binary", "object")):
        folder = tmp_path / name
        library_functions().export_c(folder, name=name, constants=constants)
        flags = f"CFLAGS=-std=c11 -O1 {' '.join(WARNINGS)} {SANITIZERS if compiler == 'gcc' else ''}"
        assert run(folder, "make", "-s", "check", f"CC={compiler}", flags).count(": right") == 1
        assert "us per run" in run(folder, folder / f"{name}_test", "3")


@needs("valgrind")
@needs("gcc")
def test_valgrind_finds_no_fault(tmp_path: Path) -> None:
    library_functions().export_c(tmp_path)
    run(tmp_path, "make", "-s", "model_test", "CC=gcc", "CFLAGS=-std=c11 -O1 -g")
    run(tmp_path, "valgrind", "-q", "--error-exitcode=9", "--leak-check=full", tmp_path / "model_test")


@needs("cmake")
@pytest.mark.parametrize("constants", ["array", "object"])
def test_the_cmake_file_builds_elsewhere(tmp_path: Path, constants: str) -> None:
    library_functions().export_c(tmp_path / "source", constants=constants)
    run(tmp_path, "cmake", "-S", "source", "-B", "build", "-DCMAKE_BUILD_TYPE=Release")
    run(tmp_path, "cmake", "--build", "build")
    assert ": right" in run(tmp_path, tmp_path / "build" / "model_test")


@needs("gcc")
@needs("nm")
@pytest.mark.parametrize("constants", ["array", "object"])
def test_objects_have_no_written_data_and_no_foreign_functions(tmp_path: Path, constants: str) -> None:
    library_functions().export_c(tmp_path, constants=constants)
    run(tmp_path, "make", "-s", "libmodel.a", "CC=gcc", "CFLAGS=-std=c11 -O2 -fno-pie -fno-stack-protector")
    rows = [line.split() for line in run(tmp_path, "nm", "libmodel.a").splitlines()]
    defined = {row[-1]: row[-2] for row in rows if len(row) == 3}
    undefined = {row[-1] for row in rows if len(row) == 2 and row[0] == "U"}
    assert undefined - defined.keys() <= {"memcpy", "memmove", "memset"}
    assert not [name for name, kind in defined.items() if kind in "BbDdCc"]
    assert {name for name, kind in defined.items() if kind.isupper()} == {
        name for name in defined if name.startswith("model_") and defined[name].isupper()
    }
    assert {"model_run_loop", "model_run_halves", "model_run_caller"} <= defined.keys()


def test_a_static_library_is_the_same_each_time(tmp_path: Path) -> None:
    first = model(1).export_archive(tmp_path / "a" / "libm.a", name="m")
    second = model(1).export_archive(tmp_path / "b" / "libm.a", name="m")
    assert [path.name for path in first] == ["libm.a", "m.h"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


SCRIPT = """
import hashlib, json, sys, tempfile, pathlib
from core.tests.artifact.test_plain_c_linking import library_functions
folder = pathlib.Path(tempfile.mkdtemp())
paths = library_functions().export_c(folder)
digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in paths))
print(json.dumps([len(paths), digest.hexdigest()]))
"""


def test_the_files_do_not_depend_on_hashes() -> None:
    found = [answer_of(SCRIPT, environment={"PYTHONHASHSEED": seed}) for seed in ("0", "1", "12345")]
    assert found[0][0] > 10
    assert found[0] == found[1] == found[2]


def test_a_loaded_artifact_is_exported_alike(tmp_path: Path) -> None:
    executable = model(1)
    executable.save(tmp_path / "model.byoc")
    refusal = """
import json, sys
import byoc_core
try:
    byoc_core.load(sys.argv[1])
except byoc_core.errors.UntrustedCodeError as error:
    print(json.dumps(type(error).__name__))
"""
    assert answer_of(refusal, str(tmp_path / "model.byoc")) == "UntrustedCodeError"
    script = """
import json, sys
import byoc_core
files = byoc_core.load(sys.argv[1], allow_native=True).export_c(sys.argv[2])
print(json.dumps(["byoc_core.ir" in sys.modules, "byoc_core.driver" in sys.modules]))
"""
    assert answer_of(script, str(tmp_path / "model.byoc"), str(tmp_path / "loaded")) == [False, False]
    executable.export_c(tmp_path / "built")
    built = {path.name: path.read_bytes() for path in (tmp_path / "built").iterdir()}
    assert built == {path.name: path.read_bytes() for path in (tmp_path / "loaded").iterdir()}


def test_given_inputs_are_the_test_vector(tmp_path: Path) -> None:
    executable = model(1)
    executable.export_c(tmp_path, test_inputs={"x": np.array([3, 4, 5], "float32")}, constants="array")
    text = (tmp_path / "model_test_constants.c").read_text()
    assert "0x1.8000000000000p+1f, 0x1.0000000000000p+2f, 0x1.4000000000000p+2f," in text
    cases: Sequence[tuple[dict[str, np.ndarray], dict[str, int] | None, str]] = [
        ({"y": np.zeros(3, "float32")}, None, "option `test_inputs`: names an unknown input `y`; expected x"),
        (
            {"x": np.zeros(9, "float32")},
            {"n": 8},
            "option `test_inputs`: exceeds the largest size of `n`; got 9, expected 8 or less",
        ),
    ]
    for inputs, largest, text in cases:
        with pytest.raises(CallError) as caught:
            executable.export_c(tmp_path / "none", test_inputs=inputs, max_sizes=largest)
        assert str(caught.value) == text
    with pytest.raises(ByocError, match="does not like 13"):
        executable.export_c(tmp_path / "none", test_inputs={"x": np.zeros(13, "float32")})
    with pytest.raises(CallError, match="float64"):
        executable.export_c(tmp_path / "none", test_inputs={"x": np.zeros(3)})
    assert not (tmp_path / "none").exists()


def test_scalars_are_inputs_of_the_test_vector(tmp_path: Path) -> None:
    specs = [tensor("x", dtype="int32")]
    executable_of((copies("main", specs, [tensor("y", dtype="int32")]),)).export_c(
        tmp_path, test_inputs={"x": np.array(7, "int32")}
    )
    assert "{\n  7,\n}" in (tmp_path / "model_test_constants.c").read_text()


def test_a_model_failing_on_drawn_inputs_has_no_test_vector(tmp_path: Path) -> None:
    only_13 = VMFunction(
        "main", (tensor("x", 13),), (tensor("y", 13),), (), (), (), (), (extern(0, (0,), (1,)), Ret((1,)))
    )
    executable_of((only_13,), [shift("one", 1)]).export_c(tmp_path)
    assert "The model fails on the drawn inputs" in (tmp_path / "main.c").read_text()
    assert run(tmp_path, "make", "-s", "check") == "model: no test vector\n"


def test_a_wrong_output_is_found_by_the_test_program(tmp_path: Path) -> None:
    """A NaN, a wrong number and a wrong integer each make the program fail, wherever they stand."""
    code = (builtin(Builtin.COPY, (0,), 1), Ret((1,)))
    for dtype, wrong in (("float32", "NAN"), ("float32", "2"), ("float64", "INFINITY"), ("int8", "2")):
        main = VMFunction("main", (tensor("x", 4, dtype=dtype),), (tensor("y", 4, dtype=dtype),), (), (), (), (), code)
        for position in (0, 3):
            folder = tmp_path / f"{dtype}{wrong}{position}"
            ones = np.ones(4, dtype)
            executable_of((main,)).export_c(folder, test_inputs={"x": ones})
            source = (folder / "model.c").read_text()
            assert "  return 0;\n}\n\nstatic const int64_t model_shape_input" in source
            broken = source.replace(
                "  return 0;\n}\n\nstatic const int64_t model_shape_input",
                f"  o0[{position}] = {wrong};\n  return 0;\n}}\n\nstatic const int64_t model_shape_input",
            )
            (folder / "model.c").write_text("#include <math.h>\n" + broken)
            done = subprocess.run(["make", "-s", "check"], cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode != 0
            assert "y: 4 elements" in done.stdout
            assert "WRONG" in done.stdout


@needs("gcc")
def test_no_archiver_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_CC", "gcc")  # zig brings an archiver
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name in ("ar", "llvm-ar") else found(name))
    with pytest.raises(ToolchainError) as caught:
        model(1).export_archive(tmp_path / "libm.a")
    text = "archiver: `ar` is not on PATH. apt-get install binutils, or pip install ziglang."
    assert str(caught.value) == text
    assert not list(tmp_path.iterdir())
