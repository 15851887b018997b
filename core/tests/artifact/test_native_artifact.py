"""Artifacts and libraries with compiled C."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from byoc_core.artifact import Executable, inspect, load, load_module, trust, verify
from byoc_core.digest import digest_of
from byoc_core.dims import symbol
from byoc_core.errors import ArtifactError, UntrustedCodeError
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import CallTraits, Signature, TensorSpec
from byoc_core.vm import Call, CallKind, Program, Ret, VirtualMachine, VMFunction

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

SHIFT = """\
#include "byoc_ffi.h"

BYOC_EXPORT const void *byoc_constants[1];

/* out = x + constant */
BYOC_EXPORT int32_t __tvm_ffi_NAME(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  const float *constant = byoc_constants[0];
  int64_t n = 0;
  (void)handle;
  (void)result;
  if (byoc_check_count("NAME", num_args, 2)) return -1;
  const DLTensor *x = byoc_tensor("NAME", "x", &args[0]);
  const DLTensor *out = byoc_tensor("NAME", "out", &args[1]);
  if (!x || !out || byoc_solve_size("NAME", "x", x, 0, 1, 0, &n)) return -1;
  if (byoc_check_size("NAME", "out", out, 0, n)) return -1;
  for (int64_t i = 0; i < n; ++i) ((float *)byoc_data(out))[i] = ((const float *)byoc_data(x))[i] + constant[0];
  return 0;
}
"""
N = symbol("n")
X, Y = TensorSpec("x", "float32", (N,)), TensorSpec("y", "float32", (N,))


def shift_module(name: str, by: float) -> CSourceModule:
    constant = np.array([by], "float32")
    return CSourceModule(
        SHIFT.replace("NAME", name), {name: Signature((X,), (Y,))}, constants={digest_of(constant): constant}
    )


@pytest.fixture
def native() -> Executable:
    """Return y = x + 1 + 10 by two modules of generated C, each with a constant."""
    main = VMFunction(
        "main",
        (X,),
        (Y, TensorSpec("z", "float32", (N,))),
        (),
        (),
        (),
        (),
        (Call(CallKind.EXTERN, 0, (0,), (1,)), Call(CallKind.EXTERN, 1, (1,), (2,)), Ret((1, 2))),
    )
    return Executable(Program((main,), ("one", "ten")), [shift_module("one", 1), shift_module("ten", 10)])


def check(executable: Executable) -> None:
    one, eleven = VirtualMachine(executable)["main"](np.arange(3, dtype="float32"))
    assert one.tolist() == [1, 2, 3]
    assert eleven.tolist() == [11, 12, 13]


def test_compiled_code_reads_constants_where_they_are_mapped(native: Executable, tmp_path: Path) -> None:
    native.save(tmp_path / "model.byoc")
    loaded = load(tmp_path / "model.byoc", allow_native=True)
    check(loaded)
    cited = [item for module in loaded.modules for item in module.constants.items()]
    assert len(cited) == 2
    for digest, array in cited:
        assert np.shares_memory(array, loaded.constants[digest])


def test_the_manifest_names_the_format_that_the_payloads_need(native: Executable, tmp_path: Path) -> None:
    one, ten = native.modules
    assert isinstance(ten, CSourceModule)
    wanting = CSourceModule(
        ten.get_source(),
        ten.signatures,
        constants=ten.constants,
        options=ten.options,
        traits={"ten": CallTraits(in_place=((0, 0),))},
    )
    for modules, version in (((one, ten), 1), ((wanting, one), 2), ((one, wanting), 2)):
        Executable(native.program, modules).save(tmp_path / "model.byoc")
        (need,) = inspect(tmp_path / "model.byoc").runtimes
        assert need.payload_format == version
        check(load(tmp_path / "model.byoc", allow_native=True))


def test_native_artifact_needs_permission_and_no_compiler(
    native: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.byoc"
    native.save(path)
    check(native)
    assert inspect(path).is_native
    with pytest.raises(UntrustedCodeError) as caught:
        load(path)
    assert str(caught.value) == (
        f"artifact `{path}`: holds native code (functions one, ten). "
        "Pass allow_native=True if you trust the origin of the artifact."
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "/nonexistent/cc")
    check(load(path, allow_native=True))
    trust(verify(path).digest)
    loaded = load(path)
    check(loaded)
    loaded.save(tmp_path / "again.byoc")
    assert (tmp_path / "again.byoc").read_bytes() == path.read_bytes()
    assert loaded.get_source() == native.get_source()


def test_manifest_that_denies_native_code_is_not_believed(native: Executable, tmp_path: Path) -> None:
    class Disguised(CSourceModule):
        @property
        def is_native(self) -> bool:
            return False

    modules = [
        Disguised(module.get_source(), module.signatures, constants=module.constants)
        for module in native.modules
        if isinstance(module, CSourceModule)
    ]
    path = tmp_path / "model.byoc"
    Executable(native.program, modules).save(path)
    assert not inspect(path).is_native
    with pytest.raises(UntrustedCodeError):
        load(path)


def test_trust_ends_with_a_change(native: Executable, tmp_path: Path) -> None:
    path = tmp_path / "model.byoc"
    native.save(path)
    trust(inspect(path).digest)
    check(load(path))
    Executable(native.program, native.modules, report={"changed": True}).save(path)
    with pytest.raises(UntrustedCodeError):
        load(path)


def test_library_runs_in_a_fresh_process(native: Executable, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    native.export_library(path)
    code = (
        "import sys, numpy, byoc_core\n"
        "module = byoc_core.load_module(sys.argv[1])\n"
        "x, y, z = numpy.zeros(2, 'float32'), numpy.zeros(2, 'float32'), numpy.zeros(2, 'float32')\n"
        "module.get_function('main')(x, y, z)\n"
        "print(y.tolist(), z.tolist(), module.function_names, len(module.get_source()))\n"
        "print([n for n in sys.modules if n.startswith('byoc_core.ir')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    length = len(native.get_source())
    assert done.stdout.splitlines() == [f"[1.0, 1.0] [11.0, 11.0] ('main', 'one', 'ten') {length}", "[]"]


def test_library_exports_the_regions_to_strangers(native: Executable, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    native.export_library(path)
    library = ctypes.CDLL(str(path))
    assert all(hasattr(library, f"__tvm_ffi_{name}") for name in ("one", "ten"))
    size = ctypes.c_uint64.in_dll(library, "byoc_artifact_size").value
    assert size == len(native.to_bytes())


def test_library_cut_short_is_refused(native: Executable, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    native.export_library(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ArtifactError):
        load_module(path)


def test_code_that_this_process_compiled_is_trusted_when_it_is_saved(native: Executable, tmp_path: Path) -> None:
    own = Executable(native.program, native.modules, is_own=True)
    own.save(tmp_path / "own.byoc")
    assert inspect(tmp_path / "own.byoc").is_trusted
    check(load(tmp_path / "own.byoc"))
    load(tmp_path / "own.byoc").save(tmp_path / "again.byoc")
    check(load(tmp_path / "again.byoc"))


def test_permission_to_load_a_file_is_no_trust_in_copies_of_it(native: Executable, tmp_path: Path) -> None:
    native.save(tmp_path / "foreign.byoc")
    loaded = load(tmp_path / "foreign.byoc", allow_native=True)
    loaded.save(tmp_path / "copy.byoc")
    changed = Executable(loaded.program, loaded.modules, loaded.constants, {"changed": True})
    changed.save(tmp_path / "changed.byoc")
    for name in ("foreign", "copy", "changed"):
        assert not inspect(tmp_path / f"{name}.byoc").is_trusted
        with pytest.raises(UntrustedCodeError):
            load(tmp_path / f"{name}.byoc")
