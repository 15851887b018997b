"""Constants of exported C as a file passed by the caller: the file, its check, runs, threads, and refusals."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.errors import CodegenError
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.module import Signature
from byoc_core.runtime.pools import Pool
from byoc_core.vm import Builtin, Call, Ret, VMFunction

from core.tests.artifact.exported_model import (
    BAD_ARGUMENT,
    BAD_CONSTANTS,
    OK,
    ExportedModel,
    aligned,
    builtin,
    c_module,
    copies,
    executable_of,
    extern,
    shift,
    tensor,
)
from core.tests.artifact.test_plain_c_programs import check_same, every_instruction
from core.tests.artifact.test_plain_c_sizes import two_steps

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler: apt-get install gcc")

SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all"
STRICT = "-std=c11 -O1 -Wall -Wextra -Werror -pedantic"


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def make(folder: Path, target: str, flags: str, compiler: str = "cc") -> str:
    command = ["make", "-s", target, f"CC={compiler}", f"CFLAGS={flags}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_all_functions_equal_the_machine(tmp_path: Path) -> None:
    executable = every_instruction()
    model = ExportedModel(executable, tmp_path, constants="file")
    for size in (0, 1, 5, 12):
        x = np.arange(2 * size, dtype="float32")
        matrix = np.arange(3 * size, dtype="float32").reshape(3, size)
        check_same(executable, model, "loop", {"n": size}, x[:size], np.array(3))
        check_same(executable, model, "halves", {"n": size}, x, matrix)
        check_same(executable, model, "caller", {"n": size}, x[:size])
        for flag in (True, False):
            check_same(executable, model, "branch", {"n": size}, x[:size], np.array(flag))


def test_the_file_holds_each_constant_at_an_aligned_offset_behind_the_digest(tmp_path: Path) -> None:
    executable = every_instruction()
    paths = executable.export_c(tmp_path, name="net", constants="file")
    assert tmp_path / "net.weights" in paths
    assert not [path for path in paths if path.name.startswith("net_constant")]
    data = (tmp_path / "net.weights").read_bytes()
    digest = hashlib.sha256(data[64:])
    assert data[:16] == b"byoc constants\0\0"
    assert int.from_bytes(data[16:24], "little") == len(data)
    assert data[24:56] == digest.digest()
    assert f'return "{digest.hexdigest()}";' in (tmp_path / "net.c").read_text()
    arrays = [*executable.constants.values()]
    assert len(arrays) == 3
    for array in arrays:
        assert any(data[start:].startswith(array.tobytes()) for start in range(64, len(data), 64))


def test_the_check_finds_other_files(tmp_path: Path) -> None:
    model = ExportedModel(every_instruction(), tmp_path, constants="file")
    data = model.weights
    assert data is not None
    library = model.library
    library.model_constants_size.restype = ctypes.c_int64
    library.model_constants_digest.restype = ctypes.c_char_p
    assert library.model_constants_size() == data.nbytes
    assert library.model_constants_digest().decode() == hashlib.sha256(data[64:].tobytes()).hexdigest()

    def check(array: Any, nbytes: int) -> int:
        return int(library.model_check_constants(ctypes.c_void_p(array), ctypes.c_int64(nbytes)))

    address = data.ctypes.data
    assert check(address, data.nbytes) == OK
    for nbytes in (-1, 0, 63, 64, data.nbytes - 1, data.nbytes + 1, -(2**63)):
        assert check(address, nbytes) == BAD_CONSTANTS
    assert check(None, data.nbytes) == BAD_ARGUMENT
    for offset in (1, 8, 32):
        assert check(address + offset, data.nbytes) == BAD_ARGUMENT
    for position in (0, 16, 24, 55, 63):
        other = aligned(data.tobytes())
        other[position] ^= 1
        assert check(other.ctypes.data, other.nbytes) == BAD_CONSTANTS


def test_a_run_refuses_missing_unaligned_and_foreign_constants(tmp_path: Path) -> None:
    model = ExportedModel(executable_of((two_steps(),), [shift("one", 1)]), tmp_path, constants="file")
    other = ExportedModel(executable_of((two_steps(),), [shift("one", 2)]), tmp_path, constants="file")
    x, right = np.arange(4, dtype="float32"), model.weights
    assert right is not None
    assert other.weights is not None
    for weights, status in (
        (right, OK),
        (None, BAD_ARGUMENT),
        (right[8:], BAD_ARGUMENT),
        (other.weights, BAD_CONSTANTS),
    ):
        model.weights = weights
        assert model.call([x], {"n": 4})[0] == status
    model.weights = right
    assert model.call([x], {"n": 4})[1][0].tolist() == [2, 3, 4, 5]


def test_threads_run_with_different_copies_at_once(tmp_path: Path) -> None:
    model = ExportedModel(every_instruction(), tmp_path, constants="file")
    (weights,) = [model.weights]
    assert weights is not None

    def work(seed: int) -> bool:
        own = aligned(weights.tobytes())
        results = [
            model.call((np.full(size, seed, "float32"),), {"n": size}, "caller", weights=own)
            for size in range(14 + seed, 200, 7)
        ]
        return all(status == OK and (y == seed + 2).all() for status, (y,) in results)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.parametrize("compiler", [pytest.param(name, marks=needs(name)) for name in ("gcc", "clang")])
@pytest.mark.parametrize("options", [{}, {"places_arguments": True}, {"pools": [Pool("sram", 4096), Pool("dram")]}])
def test_the_test_program_maps_the_file(tmp_path: Path, compiler: str, options: dict[str, Any]) -> None:
    executable = executable_of((two_steps(),), [shift("one", 1)])
    executable.export_c(tmp_path / "c", max_sizes={"n": 5}, constants="file", **options)
    flags = f"{STRICT} {SANITIZERS if compiler == 'gcc' else ''}"
    assert make(tmp_path / "c", "check", flags, compiler).count(": right") == 1
    weights = tmp_path / "c" / "model.weights"
    moved = weights.rename(tmp_path / "moved.weights")
    program: Sequence[Path | str] = [tmp_path / "c" / "model_test", "2"]
    for arguments, text, status in (
        ((moved,), ": right", 0),
        ((tmp_path / "absent",), "absent: not the constants", 1),
        ((tmp_path / "c" / "main.c",), "main.c: not the constants", 1),
        ((), "model.weights: not the constants", 1),
    ):
        done = subprocess.run([*program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (status, "")
        assert text in done.stdout


@needs("gcc")
def test_the_test_program_runs_without_mmap(tmp_path: Path) -> None:
    executable_of((two_steps(),), [shift("one", 1)]).export_c(tmp_path, constants="file")
    without = f"{STRICT} -U__unix__ -U__APPLE__ {SANITIZERS}"
    assert ": right" in make(tmp_path, "check", without, "gcc")
    with (tmp_path / "model.weights").open("ab") as stream:
        stream.write(b"\0")
    done = subprocess.run(["./model_test"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "model.weights: not the constants\n")


@needs("gcc")
@needs("nm")
def test_the_library_holds_no_constants_and_no_written_globals(tmp_path: Path) -> None:
    every_instruction().export_c(tmp_path, constants="file")
    make(tmp_path, "libmodel.a", "-std=c11 -O2 -fno-pie -fno-stack-protector", "gcc")
    rows = [
        line.split()
        for line in subprocess.run(
            ["nm", "libmodel.a"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    ]
    defined = {row[-1]: row[-2] for row in rows if len(row) == 3}
    assert not [name for name, kind in defined.items() if kind in "BbDdCc"]
    assert {row[-1] for row in rows if len(row) == 2} - defined.keys() <= {"memcpy", "memmove", "memset", "memcmp"}
    assert {"model_check_constants", "model_constants_size", "model_constants_digest"} <= defined.keys()


@needs("cmake")
def test_the_cmake_test_finds_the_file(tmp_path: Path) -> None:
    executable_of((two_steps(),), [shift("one", 1)]).export_c(tmp_path / "c", constants="file")
    for command in (
        ["cmake", "-S", "c", "-B", "build"],
        ["cmake", "--build", "build"],
        ["ctest", "--test-dir", "build"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_model_without_constants_has_no_file(tmp_path: Path) -> None:
    executable = executable_of((copies("main", [tensor("x", 2)], [tensor("y", 2)]),))
    executable.export_c(tmp_path / "file", constants="file")
    executable.export_c(tmp_path / "auto")
    texts = [{path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} for folder in ("file", "auto")]
    assert texts[0] == texts[1]


def test_equal_models_give_equal_files(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        every_instruction().export_c(tmp_path / folder, constants="file")
    assert (tmp_path / "a" / "model.weights").read_bytes() == (tmp_path / "b" / "model.weights").read_bytes()


def test_names_like_those_of_the_constants(tmp_path: Path) -> None:
    names = ("constants", "constants_size", "check_constants", "table_0", "MODEL_CONSTANTS_SIZE")
    specs, results = [tensor(name, "n") for name in names], [tensor(f"y{k}", "n") for k in range(5)]
    copies_code: list[Call | Ret] = [builtin(Builtin.COPY, (k,), 5 + k) for k in range(1, 5)]
    code = (extern(0, (0,), (5,)), *copies_code, Ret(tuple(range(5, 10))))
    functions = [
        VMFunction(name, tuple(specs), tuple(results), (), (), (), (), code) for name in ("main", "constants", "size")
    ]
    executable_of(functions, [shift("check_constants", 1)]).export_c(tmp_path, constants="file")
    assert make(tmp_path, "check", STRICT).count(": right") == 5


HELPERS = """\
static float by(void) {
  return *(const float *)byoc_constants[0];
}
static float sum(float x, float y) {
  return x + y;
}
static inline float shifted(float x) {
  return sum(x, by());
}
BYOC_EXPORT int32_t f_(const float *x, float *out, int64_t dim_n) {
  for (int64_t i = 0; i < dim_n; ++i) out[i] = shifted(x[i]);
  return 0;
}"""


def with_source(raw: str) -> Executable:
    """Return y = f(x), with the constant 5."""
    spec = tensor("x", "n")
    module = c_module("f", raw, Signature((spec,), (spec,)), np.array([5], "float32"))
    main = VMFunction("main", (spec,), (tensor("y", "n"),), (), (), (), (), (extern(0, (0,), (1,)), Ret((1,))))
    return executable_of((main,), [module])


def test_functions_called_by_others_read_constants(tmp_path: Path) -> None:
    model = ExportedModel(with_source(HELPERS), tmp_path, constants="file")
    text = model.model.files["model_module0.c"].decode()
    assert "static float by(const void *const *byoc_constants) {" in text
    assert "static float sum(float x, float y) {" in text
    assert model.call([np.arange(2, dtype="float32")], {"n": 2})[1][0].tolist() == [5, 6]


@pytest.mark.parametrize(
    "raw",
    [
        HELPERS.replace("static inline", "static float (*const pointer)(void) = by;\nstatic inline"),
        HELPERS.replace("  return sum(x, by());", "  float (*const pointer)(void) = by;\n  return sum(x, pointer());"),
        HELPERS.replace("static float by", "#define WEIGHT byoc_constants[0]\nstatic float by"),
        HELPERS.replace("static float by(void) {", "static float by(void);\nstatic float by(void) {"),
    ],
)
def test_sources_with_pointers_to_such_functions_need_another_form(tmp_path: Path, raw: str) -> None:
    executable = with_source(raw)
    with pytest.raises(CodegenError) as caught:
        executable.export_c(tmp_path / "c", constants="file")
    assert str(caught.value) == (
        "source of `f`: uses constants outside of functions, or passes pointers to functions with constants; expected "
        "another form of constants than `file`"
    )
    assert not list(tmp_path.iterdir())
    status, (y,) = ExportedModel(executable, tmp_path).call([np.zeros(2, "float32")], {"n": 2})
    assert (status, y.tolist()) == (OK, [5, 5])
