"""The C-source module and the saved form."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import symbol
from byoc_core.errors import ArtifactError, CallError, ToolchainError, UntrustedCodeError
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.csource_plugin import (
    byoc_load_module,
    byoc_runtime_info,
    byoc_runtime_status,
    byoc_save_module,
)
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import Signature, TensorSpec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.interpreter

SOURCE = """\
#include "byoc_ffi.h"

BYOC_EXPORT const void *byoc_constants[1];

/* out = x + constant */
BYOC_EXPORT int32_t __tvm_ffi_shift(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  const float *constant = byoc_constants[0];
  int64_t n = 0;
  (void)handle;
  (void)result;
  if (byoc_check_count("shift", num_args, 2)) return -1;
  const DLTensor *x = byoc_tensor("shift", "x", &args[0]);
  const DLTensor *out = byoc_tensor("shift", "out", &args[1]);
  if (!x || !out || byoc_solve_size("shift", "x", x, 0, 1, 0, &n)) return -1;
  if (byoc_check_size("shift", "out", out, 0, n)) return -1;
  for (int64_t i = 0; i < n; ++i) ((float *)byoc_data(out))[i] = ((const float *)byoc_data(x))[i] + constant[i % 3];
  return 0;
}
"""
DIGEST = "ab" * 32
CONSTANT = np.array([10, 20, 30], dtype="float32")
SIGNATURE = Signature((TensorSpec("x", "float32", (symbol("n"),)),), (TensorSpec("out", "float32", (symbol("n"),)),))
CONTEXT = LoadContext(constants={DIGEST: CONSTANT}, allow_native=True, source="model.byoc")


def _module() -> CSourceModule:
    return CSourceModule(SOURCE, {"shift": SIGNATURE}, constants={DIGEST: CONSTANT})


def _check(module: CSourceModule) -> None:
    x = np.arange(6, dtype="float32")
    out = np.empty(6, dtype="float32")
    module.get_function("shift")(x, out)
    np.testing.assert_array_equal(out, [10, 21, 32, 13, 24, 35])


def test_it_is_built_when_a_function_is_asked_for() -> None:
    module = _module()
    assert module.type_key == "csource"
    assert module.function_names == ("shift",)
    assert module.get_source() == module.get_source("c") == SOURCE
    assert module.get_source("json") == ""
    assert list(module.constants) == [DIGEST]
    _check(module)
    assert module.get_function("shift") is module.get_function("shift")
    with pytest.raises(CallError, match=r"^module `csource`: has no function `shaft`; expected shift. Did you mean"):
        module.get_function("shaft")


def test_a_function_outlives_its_module_and_the_constants() -> None:
    import gc
    import weakref

    array = np.array([10, 20, 30], dtype="float32")
    alive = weakref.ref(array)
    function = CSourceModule(SOURCE, {"shift": SIGNATURE}, constants={DIGEST: array}).get_function("shift")
    del array
    gc.collect()
    assert alive() is not None
    del function
    gc.collect()
    assert alive() is None


def test_several_threads_build_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = _module()
    runs: list[int] = []
    compile_ = Toolchain.compile

    def counted(*args: Any, **kwargs: Any) -> Any:
        runs.append(1)
        return compile_(*args, **kwargs)

    monkeypatch.setattr(Toolchain, "compile", counted)
    threads = [threading.Thread(target=_check, args=(module,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs == [1]


def test_it_is_saved_and_loaded_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = byoc_save_module(_module())
    assert payload == byoc_save_module(_module())
    monkeypatch.setattr(Toolchain, "compile", lambda *_, **__: pytest.fail("compiled"))
    loaded = byoc_load_module(payload, CONTEXT)
    assert isinstance(loaded, CSourceModule)
    assert loaded.get_source() == SOURCE
    assert loaded.signatures == {"shift": SIGNATURE}
    _check(loaded)
    assert byoc_save_module(loaded) == payload


def test_native_code_must_be_allowed() -> None:
    payload = byoc_save_module(_module())
    with pytest.raises(UntrustedCodeError) as caught:
        byoc_load_module(payload, LoadContext(constants={DIGEST: CONSTANT}, source="model.byoc"))
    assert str(caught.value) == (
        "model.byoc: holds native code (functions shift). Pass allow_native=True if you trust the source."
    )


def test_a_constant_must_be_there() -> None:
    with pytest.raises(ArtifactError, match=f"^model.byoc: cites a missing constant; got {DIGEST}$"):
        byoc_load_module(byoc_save_module(_module()), LoadContext(allow_native=True, source="model.byoc"))


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_mutated_bytes_raise_only_our_errors(data: st.DataObject) -> None:
    payload = bytearray(byoc_save_module(_module()))
    position = data.draw(st.integers(0, len(payload) - 1))
    if data.draw(st.booleans()):
        del payload[position:]
    else:
        payload[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ArtifactError):
        byoc_load_module(bytes(payload), CONTEXT)


@settings(max_examples=80, deadline=None)
@given(header=st.binary(max_size=60) | st.from_regex(r'\{"functions": ?\[[^\]]{0,20}\].{0,20}\}').map(str.encode))
def test_a_malformed_header_with_a_right_digest_raises_only_our_errors(header: bytes) -> None:
    import hashlib
    import struct

    body = struct.pack("<QQQ", len(header), 0, 0) + header
    with pytest.raises(ArtifactError):
        byoc_load_module(b"byoc-csource-1\n" + hashlib.sha256(body).digest() + body, CONTEXT)


def test_no_compiler_is_an_error_at_the_first_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_CC", "no-such-compiler")
    with pytest.raises(ToolchainError, match=r"^\$BYOC_CC: does not name an executable program"):
        _module().get_function("shift")


def test_what_the_runtime_says_of_itself() -> None:
    assert byoc_runtime_info().type_key == "csource"
    assert byoc_runtime_status().ok


def test_loading_imports_nothing_of_the_compile_side(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(byoc_save_module(_module()))
    script = (
        "import sys, numpy\n"
        "from byoc_core.runtime.csource_plugin import byoc_load_module\n"
        "from byoc_core.runtime.hooks import LoadContext\n"
        f"context = LoadContext({{'{DIGEST}': numpy.ones(3, 'float32')}}, True)\n"
        "module = byoc_load_module(open(sys.argv[1], 'rb').read(), context)\n"
        "out = numpy.zeros(3, 'float32')\n"
        "module.get_function('shift')(numpy.ones(3, 'float32'), out)\n"
        "assert out.tolist() == [2, 2, 2]\n"
        "sides = 'ir ops pattern transform backend partitioning lower frontend driver cli'.split()\n"
        "print([name for name in sides if f'byoc_core.{name}' in sys.modules])\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "payload")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.stdout, finished.stderr) == ("[]\n", "")
