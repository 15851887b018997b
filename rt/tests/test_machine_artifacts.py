"""Artifacts in the C runtime: checks of files, constants in place, runtimes, native code and its libraries."""

from __future__ import annotations

import hashlib
import json
import resource
import struct
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.artifact import Executable
from byoc_core.dtypes import all_dtypes, complex_dtypes, to_numpy
from byoc_core.native.toolchain import BuildOptions, Toolchain, find_toolchain
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import Signature
from byoc_core.vm import Builtin, Program, Ret

from core.tests.artifact.fuzzing.members import packed, taken_apart
from rt.tests.runner import NativeError, NativeLibrary, Status
from rt.tests.saved import assert_same_bits, load_saved
from rt.tests.test_machine_programs import draw, joined
from rt.tests.written_programs import advance, builtin, constant_of, executable_of, function_of, spec, view

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

NDArray = npt.NDArray[Any]
MEBIBYTE = 1 << 20


def copies_of(*arrays: NDArray) -> Executable:
    """Return an executable whose results are copies of constants."""
    count = len(arrays)
    function = function_of(
        [],
        [spec(f"y{index}", *array.shape, dtype=array.dtype.name) for index, array in enumerate(arrays)],
        [*(builtin(Builtin.COPY, [count + index], [index]) for index in range(count)), Ret(tuple(range(count)))],
        constants=range(count),
    )
    return executable_of(function, arrays=arrays)


def loading_error(native: NativeLibrary, content: bytes) -> NativeError:
    """Return the error of loading an artifact from memory."""
    with pytest.raises(NativeError) as caught:
        native.load_bytes(content)
    return caught.value


def with_manifest(content: bytes, change: Callable[[Any], object]) -> bytes:
    """Return an artifact with a changed manifest."""
    members = taken_apart(content)
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    return packed({**members, "manifest.json": json.dumps(manifest).encode()})


def test_constants_of_all_dtypes(native: NativeLibrary, tmp_path: Path) -> None:
    names = (*all_dtypes(), *complex_dtypes())
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 2, (2, 3)).astype(to_numpy(name)) for name in names]
    arrays += [np.zeros((0, 4), np.float32), np.array(2.5), np.zeros((), np.bool_)]
    results = load_saved(copies_of(*arrays), native, tmp_path)["main"]()
    assert_same_bits(results, arrays)


def test_constants_stay_in_the_file(native: NativeLibrary, tmp_path: Path) -> None:
    """A constant of a gibibyte, of which nothing is read but a row."""
    table = np.zeros((1 << 18, 1 << 10), np.float32)
    table[7] = np.arange(1 << 10)
    function = function_of(
        [], [spec("y", 1 << 10)], [builtin(Builtin.COPY, [2], [0]), Ret((0,))], constants=[0],
        views=[view(1, 7 << 12, 1 << 10)],
    )  # fmt: skip
    path = tmp_path / "large.byoc"
    executable_of(function, arrays=[table]).save(path)
    before = resident_nbytes()
    program = native.load(path)
    (found,) = program["main"]()
    np.testing.assert_array_equal(found, table[7])
    assert resident_nbytes() - before < 100 << 20


def resident_nbytes() -> int:
    """Return the memory of this process that lies in RAM."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("count", [MEBIBYTE // 4 - 1, MEBIBYTE // 4])
def test_constants_under_a_mebibyte_are_checked(native: NativeLibrary, count: int) -> None:
    array = np.ones(count, np.float32)
    content = copies_of(array).to_bytes()
    place = content.index(array.tobytes()) + 2
    damaged = content[:place] + b"\0" + content[place + 1 :]
    if count * 4 < MEBIBYTE:
        error = loading_error(native, damaged)
        assert f"constant {constant_of(array).digest}: is damaged" in str(error)
        assert error.status is Status.ARTIFACT
    else:
        (found,) = native.load_bytes(damaged)["main"]()
        assert np.count_nonzero(found != 1) == 1


@pytest.mark.parametrize("offset", [0, 1, 8, 63])
def test_artifacts_in_memory_of_any_alignment(native: NativeLibrary, offset: int) -> None:
    content = copies_of(draw(3, 5)).to_bytes()
    memory = np.zeros(len(content) + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    memory[start : start + len(content)] = np.frombuffer(content, np.uint8)
    (found,) = native.load_bytes(memory[start : start + len(content)])["main"]()
    np.testing.assert_array_equal(found, draw(3, 5))


def foreign_zip(tmp_path: Path) -> bytes:
    """Return a zip file of another program."""
    path = tmp_path / "foreign.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")
    return path.read_bytes()


def test_files_that_are_no_artifacts(native: NativeLibrary, tmp_path: Path) -> None:
    content = joined().to_bytes()
    for data, problem in (
        (b"", "is empty"),
        (b"#!/bin/sh\n", "is not a byoc artifact"),
        (content[:-1], "is truncated or damaged"),
        (content[:70], "is truncated or damaged"),
        (foreign_zip(tmp_path), "is truncated or damaged"),
    ):
        error = loading_error(native, data)
        assert str(error).startswith(f"artifact in memory: {problem}")
        assert error.status is Status.ARTIFACT
    with pytest.raises(NativeError, match=r"^artifact `.*missing.byoc`: cannot be read: No such file or directory"):
        native.load(tmp_path / "missing.byoc")
    with pytest.raises(NativeError, match="cannot be read: is not a file"):
        native.load(tmp_path)


def manifest_changes() -> Iterator[tuple[Callable[[Any], object], str]]:
    """Yield changes of a manifest, and part of the error."""
    yield (
        lambda m: m.update(format_version=2, core_version="9.8", added=1),
        "made by byoc-core 9.8 in artifact format 2",
    )
    yield lambda m: m.update(added=1), "an unknown field `added`"
    yield lambda m: m.pop("core_version"), "a field is missing: `core_version`"
    yield lambda m: m.update(format="zip"), "`format` or `format_version`"
    yield lambda m: m["functions"][0].update(name="other"), "has functions other than declared by the manifest"
    yield lambda m: m["functions"][0]["inputs"][0].update(dtype="int8"), "has functions other than declared"
    yield lambda m: m["functions"][0]["inputs"][0].update(dtype="float31"), "unknown dtype `float31`"
    yield lambda m: m["runtimes"].clear(), "the manifest names no runtime for modules of `csource`"
    yield (
        lambda m: m["runtimes"][0].update(payload_format=9),
        "the payload format of runtime `csource` is 9; expected 1",
    )
    yield lambda m: m["modules"].clear(), "has members not named by the manifest"
    yield lambda m: m["modules"][0].update(functions=["f"]), "external symbol `advance` is not defined by any module"
    yield (
        lambda m: m["constants"].update({"0" * 64: {"dtype": "int8", "shape": [1]}}),
        "constant 000000000000 is not in",
    )


@pytest.mark.parametrize(("change", "problem"), [*manifest_changes()])
def test_wrong_manifests_are_explained(native: NativeLibrary, change: Callable[[Any], object], problem: str) -> None:
    error = loading_error(native, with_manifest(joined().to_bytes(), change))
    assert problem in str(error)


def test_artifacts_in_memory_without_constants_are_refused_with_the_remedy(native: NativeLibrary) -> None:
    arrays = np.arange(4, dtype=np.float32), np.arange(8, dtype=np.float32)
    members = taken_apart(copies_of(*arrays).to_bytes())
    without = {name: data for name, data in members.items() if not name.startswith("constants/")}
    assert without.keys() < members.keys()
    with pytest.raises(NativeError, match=r"The constants are in another file.*byoc weights join") as caught:
        native.load_bytes(packed(without))
    assert caught.value.status is Status.ARTIFACT
    lost = min(members.keys() - without.keys())
    with pytest.raises(NativeError, match=f"has no member {lost}"):
        native.load_bytes(packed({name: data for name, data in members.items() if name != lost}))


def test_a_missing_runtime_is_named_with_its_functions(native: NativeLibrary) -> None:
    def change(manifest: Any) -> None:
        manifest["runtimes"][0].update(type_key="npu", distribution="byoc-npu", version="1.2")
        manifest["modules"][0].update(type_key="npu", functions=["advance", "retreat"])

    error = loading_error(native, with_manifest(joined().to_bytes(), change))
    assert error.status is Status.LINK
    assert "needs runtime `npu` of byoc-npu 1.2 for the functions advance, retreat" in str(error)
    assert "byoc_rt_load_runtime" in str(error)
    assert "BYOC_RT_RUNTIMES" in str(error)


def test_code_for_another_machine_is_refused(native: NativeLibrary) -> None:
    content = joined().to_bytes()
    for old, new, problem in (
        (b'"system": "Linux"', b'"system": "Plan9"', "the native code is for another kind of machine; got Plan9 on"),
        (b'"features": ["', b'"features": ["x', "the native code needs CPU features missing on this machine: x"),
    ):
        if old not in content:
            continue  # the compiler's code has no features beyond the family's
        members = taken_apart(content)
        payload = members["modules/0/payload"].replace(old, new, 1)
        error = loading_error(native, packed({**members, "modules/0/payload": rehashed(payload)}))
        assert problem in str(error)
        assert error.status is Status.LINK


def rehashed(payload: bytes) -> bytes:
    """Return a payload of generated C with right digest and lengths, after a change of the header."""
    magic, body = payload[:15], payload[47:]
    _, source, library = struct.unpack_from("<QQQ", body)
    lengths = struct.pack("<QQQ", len(body) - 24 - source - library, source, library)
    return magic + hashlib.sha256(lengths + body[24:]).digest() + lengths + body[24:]


def test_damaged_payloads_are_refused(native: NativeLibrary) -> None:
    members = taken_apart(joined().to_bytes())
    payload = members["modules/0/payload"]
    for changed, problem in (
        (payload[:-1], "the digest does not fit the bytes"),
        (b"x" + payload[1:], "is not a csource module of format 1 to 3"),
        (payload.replace(b"csource-2", b"csource-1"), "the format does not fit the content"),
        (payload[:20], "is not a csource module of format 1 to 3"),
        (rehashed(payload.replace(b'"strided": true', b'"strided": 1')), "`strided` is not a boolean"),
        (rehashed(payload.replace(b'"advance"', b'"ad-vance"', 1)), "a symbol is no C identifier"),
    ):
        assert problem in str(loading_error(native, packed({**members, "modules/0/payload": changed})))
    error = loading_error(native, joined().to_bytes().replace(payload[50:60], b"0123456789"))
    assert "member modules/0/payload: is damaged" in str(error)


WEIGHTED = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        product = R.matmul(x, R.const(WEIGHTS, "float32"))
        result = R.nn.relu(product)
        return result
"""


def weighted(seed: int) -> tuple[Executable, NDArray]:
    """Return a compiled product with a constant, and the constant."""
    weights = np.random.default_rng(seed).integers(-3, 4, (4, 4)).astype(np.float32)
    text = WEIGHTED.replace("WEIGHTS", str(weights.tolist()))
    return byoc_core.build(byoc_core.parse(text), backends=["ccompiler"]), weights


def test_programs_of_equal_code_keep_their_constants(native: NativeLibrary, tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    loaded = []
    for seed in range(3):
        executable, weights = weighted(seed)
        loaded.append((load_saved(executable, native, tmp_path)["main"], np.maximum(x @ weights, 0)))
    for _ in range(2):
        for function, expected in loaded:
            np.testing.assert_array_equal(function(x)[0], expected)


def test_loading_again_and_again_loads_no_library_again(native: NativeLibrary, tmp_path: Path) -> None:
    content = weighted(5)[0].to_bytes(), joined().to_bytes()
    counts = []
    for _ in range(3):
        for _ in range(20):
            for data in content:
                native.load_bytes(data)
        counts.append(len(Path("/proc/self/maps").read_text("utf-8").splitlines()))
    assert max(counts) - min(counts) < 20


HELPED = """\
#include "byoc_ffi.h"
extern float rt_test_helper(float);
BYOC_EXPORT int32_t __tvm_ffi_advance(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)handle, (void)num_args, (void)result;
  const DLTensor *x = args[0].v_ptr, *y = args[1].v_ptr;
  for (int64_t i = 0; i < x->shape[0]; ++i)
    ((float *)byoc_data(y))[i] = rt_test_helper(((const float *)byoc_data(x))[i]);
  return 0;
}
"""


def test_libraries_needed_by_generated_code(
    native: NativeLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helper.c").write_text("float rt_test_helper(float x) { return 3 * x; }\n", encoding="ascii")
    library = tmp_path / "librt_test_helper.so"
    command = [*find_toolchain().command, "-shared", "-fPIC", f"-Wl,-soname,{library.name}", str(tmp_path / "helper.c")]
    subprocess.run([*command, "-o", str(library)], check=True)
    options = BuildOptions(libraries=("rt_test_helper",), library_dirs=(str(tmp_path),))
    signature = Signature((spec("x", "n"),), (spec("y", "n"),))
    module = CSourceModule(HELPED, {"advance": signature}, options=options)
    function = function_of([spec("x", "n")], [spec("y", "n")], [advance(0, 1), Ret((1,))])
    path = tmp_path / "helped.byoc"
    Executable(Program((function,), ("advance",)), [module], is_own=True).save(path)
    monkeypatch.delenv("BYOC_LIBRARY_PATH", raising=False)
    with pytest.raises(NativeError) as caught:
        native.load(path)
    assert library.name in str(caught.value)
    assert "BYOC_LIBRARY_PATH" in str(caught.value)
    assert caught.value.status is Status.LINK
    monkeypatch.setenv("BYOC_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    (found,) = native.load(path)["main"](np.array([1, 2], np.float32))
    np.testing.assert_array_equal(found, [3, 6])
