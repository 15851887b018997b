from __future__ import annotations

import threading

import numpy as np
import pytest
from byoc_core.errors import ArtifactError, ExecutionError, InternalError
from byoc_core.native.cpu import Target
from byoc_core.native.loader import NativeFunction, load_library
from byoc_core.native.toolchain import find_toolchain

pytestmark = [pytest.mark.interpreter, pytest.mark.libraries]

VECTOR = ("float32", (None,))


@pytest.fixture
def function(source: str) -> NativeFunction:
    compiled = find_toolchain().compile(source)
    return load_library(compiled.data, compiled.target, "test").function("scaled_add", [VECTOR] * 3)


def test_it_computes(function: NativeFunction) -> None:
    x, y = np.arange(4, dtype="float32"), np.ones(4, dtype="float32")
    out = np.empty(4, dtype="float32")
    x.flags.writeable = False
    function(x, y, out)
    np.testing.assert_array_equal(out, 2 * (x + y))


def test_empty_arrays(function: NativeFunction) -> None:
    empty = np.empty(0, dtype="float32")
    function(empty, empty, empty)


def test_the_message_of_the_c_function_arrives(function: NativeFunction) -> None:
    x = np.zeros(4, dtype="float32")
    with pytest.raises(ExecutionError) as caught:
        function(x, np.zeros(3, dtype="float32"), x.copy())
    assert str(caught.value) == "function `scaled_add`, argument `y`: wrong size of axis 0; got 3, expected 4"
    with pytest.raises(InternalError):
        function(x, x)


def test_several_threads_at_once(function: NativeFunction) -> None:
    failures: list[int] = []

    def work(seed: int) -> None:
        x = np.full(1000 + seed, seed, dtype="float32")
        out = np.empty_like(x)
        for _ in range(300):
            function(x, x, out)
            if not (out == 4 * seed).all():
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_library_for_another_machine_is_refused(source: str) -> None:
    here = Target.local()
    with pytest.raises(ArtifactError) as caught:
        load_library(b"", Target("Plan9", "mips"), "f")
    assert str(caught.value) == (
        f"library `f`: the native code is for another kind of machine; got Plan9 on mips, expected {here.system} on "
        f"{here.machine}. Compile the model again on this machine, or for `march` = 'generic'."
    )
    with pytest.raises(ArtifactError, match="needs CPU features missing on this machine: quantum"):
        load_library(b"", Target.local(["quantum"]), "f")


def test_bytes_that_are_no_library_are_refused() -> None:
    with pytest.raises(ArtifactError, match=r"^library `f`: cannot be loaded\n"):
        load_library(b"not a library", Target.local(), "f")


def test_a_missing_function_is_named(source: str) -> None:
    compiled = find_toolchain().compile(source)
    library = load_library(compiled.data, compiled.target, "test")
    assert library.address_of("__tvm_ffi_scaled_add")
    with pytest.raises(ArtifactError) as caught:
        library.function("other", [])
    assert str(caught.value) == "library `test`: does not export the symbol `__tvm_ffi_other`"
