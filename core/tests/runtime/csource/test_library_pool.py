"""Libraries of generated code are loaded once in a process, for any number of loads and drops of their modules."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.errors import ArtifactError, UntrustedCodeError
from byoc_core.native.cpu import Target
from byoc_core.native.loader import open_library
from byoc_core.native.toolchain import CompiledLibrary, find_toolchain
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.csource import library_pool as pools
from byoc_core.runtime.csource.library_pool import LibraryPool, library_pool
from byoc_core.runtime.csource_plugin import byoc_load_module, byoc_save_module
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import PackedFunction, Signature, TensorSpec
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.interpreter

ADD = """\
#include "byoc_ffi.h"
BYOC_EXPORT const void *byoc_constants[1];
BYOC_EXPORT int32_t __tvm_ffi_add(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)handle; (void)num_args; (void)result;
  *(int64_t *)((DLTensor *)args[0].v_ptr)->data += *(const int64_t *)byoc_constants[0];
  return 0;
}
"""
COUNT = """\
#include "byoc_ffi.h"
BYOC_EXPORT int32_t __tvm_ffi_add(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)handle; (void)num_args; (void)result;
  *(int64_t *)((DLTensor *)args[0].v_ptr)->data += STEP;
  return 0;
}
"""
SIGNATURE = {"add": Signature((), (TensorSpec("sum", "int64", ()),))}
DIGEST = "cd" * 32


def adder(by: int) -> CSourceModule:
    return CSourceModule(ADD, SIGNATURE, constants={DIGEST: np.array(by)})


def stepper(step: int) -> CSourceModule:
    return CSourceModule(COUNT.replace("STEP", str(step)), SIGNATURE)


def added(function: PackedFunction) -> int:
    total = np.zeros((), np.int64)
    function(total)
    return int(total)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the bytes of each opened library, in order, with a new pool of the process."""
    found: list[bytes] = []

    def note(data: bytes, target: Target, name: str, **given: Any) -> object:
        found.append(data)
        return open_library(data, target, name, **given)

    monkeypatch.setattr(pools, "open_library", note)
    monkeypatch.setattr("byoc_core.runtime.csource.module.library_pool", LibraryPool())
    return found


def test_modules_without_constants_share_one_library(opened: list[bytes]) -> None:
    functions = [stepper(3).get_function("add") for _ in range(20)]
    assert {added(function) for function in functions} == {3}
    assert len(opened) == 1


def test_other_bytes_are_another_library(opened: list[bytes]) -> None:
    three, four = stepper(3).get_function("add"), stepper(4).get_function("add")
    assert (added(three), added(four)) == (3, 4)
    assert len(set(opened)) == len(opened) == 2


def test_modules_of_one_text_have_their_own_constants(opened: list[bytes]) -> None:
    functions = [adder(by).get_function("add") for by in range(5)]
    assert [added(function) for function in functions] == list(range(5))
    assert len(opened) == 5
    assert len(set(opened)) == 1
    del functions[1:4]
    gc.collect()
    functions += [adder(by).get_function("add") for by in (7, 8, 9)]
    assert [added(function) for function in functions] == [0, 4, 7, 8, 9]
    assert len(opened) == 5, "copies that nobody holds serve again"


@settings(max_examples=30)
@given(steps=st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 5)), max_size=30))
def test_no_module_ever_reads_the_constants_of_another(steps: list[tuple[int, int]]) -> None:
    held: dict[int, tuple[int, PackedFunction]] = {}
    for by, slot in steps:
        held[slot] = (by, adder(by).get_function("add"))
        assert all(added(function) == expected for expected, function in held.values())


@pytest.mark.parametrize("make", [lambda: stepper(5), lambda: adder(5)], ids=["shared", "with constants"])
def test_threads_that_come_at_once_load_no_more_than_they_hold(opened: list[bytes], make: object) -> None:
    assert callable(make)
    make().build()
    barrier = threading.Barrier(8)
    sums: list[int] = []

    def load() -> None:
        barrier.wait()
        sums.extend(added(make().get_function("add")) for _ in range(20))

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [5] * 160
    assert len(opened) <= (8 if make().constants else 1)


def test_a_library_in_the_process_is_no_permission(opened: list[bytes]) -> None:
    module = stepper(6)
    payload = byoc_save_module(module)
    assert added(module.get_function("add")) == 6
    with pytest.raises(UntrustedCodeError, match="holds native code"):
        byoc_load_module(payload, LoadContext(allow_native=False, source="model.byoc"))
    trusted = byoc_load_module(payload, LoadContext(allow_native=True, source="model.byoc"))
    assert added(trusted.get_function("add")) == 6
    assert len(opened) == 1


def test_the_target_is_checked_though_the_bytes_are_loaded() -> None:
    library = stepper(7).build()
    pool = LibraryPool()
    pool.take(library, "add")
    with pytest.raises(ArtifactError, match="quantum"):
        pool.take(CompiledLibrary(library.data, Target.local(["quantum"])), "add")


def test_a_library_without_a_table_is_told_of() -> None:
    library = find_toolchain().compile(COUNT.replace("STEP", "8"))
    with pytest.raises(ArtifactError, match="does not export the symbol `byoc_constants`"):
        library_pool.take(library, "add", (np.array(1),))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_goes_on_with_tables_of_its_own() -> None:
    program = f"""
import gc, os, sys
import numpy as np
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import Signature, TensorSpec
def adder(by):
    signature = {{"add": Signature((), (TensorSpec("sum", "int64", ()),))}}
    return CSourceModule({ADD!r}, signature, constants={{{DIGEST!r}: np.array(by)}}).get_function("add")
def added(function):
    total = np.zeros((), np.int64)
    function(total)
    return int(total)
first, second = adder(1), adder(2)
del second
gc.collect()
child = os.fork()
third = adder(4 if child else 3)
right = (added(first), added(third)) == (1, 4 if child else 3)
if not child:
    os._exit(not right)
sys.exit(os.waitpid(child, 0)[1] != 0 or not right)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def _mappings() -> int:
    return Path("/proc/self/maps").read_text().count("\n")


def _resident_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not list a process's mappings")
@pytest.mark.parametrize("make", [stepper, adder])
def test_loading_again_and_again_takes_no_memory(make: object) -> None:
    assert callable(make)
    payload = byoc_save_module(make(9))
    context = LoadContext(constants={DIGEST: np.array(9)}, allow_native=True, source="model.byoc")

    def load(times: int) -> None:
        for _ in range(times):
            assert added(byoc_load_module(payload, context).get_function("add")) == 9
        gc.collect()

    load(10)
    mappings, nbytes = _mappings(), _resident_nbytes()
    load(100)
    # A copy of a library takes four mappings or more, and 40 kB. The allocator may add or join a mapping of its own.
    assert _mappings() - mappings < 100
    assert _resident_nbytes() - nbytes < 100 * 20_000
