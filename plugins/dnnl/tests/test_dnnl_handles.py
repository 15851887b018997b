"""Handles: freed exactly once, failures naming the call, descriptions of layouts."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from collections import Counter

import pytest
from byoc_core.errors import ExecutionError
from byoc_dnnl.capi import Api, dims_array
from byoc_dnnl.engine import open_engine
from byoc_dnnl.extension import extension, extension_status
from byoc_dnnl.handles import Engine, MemoryDesc
from byoc_dnnl.library import load_library

NCHW16C = 78
"""``dnnl_nChw16c``: the order of this enumeration is the same in all versions 3."""


class _Counting(Api):
    """A counter of the freeing calls, by Python and by the extension."""

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__(library)
        self.freed: Counter[str] = Counter()
        self._callbacks: list[object] = []
        for name, function in [*self._functions.items()]:
            if name.endswith("_destroy"):

                def count(pointer: ctypes.c_void_p, name: str = name, function: object = function) -> int:
                    self.freed[name] += 1
                    return int(function(pointer))  # type: ignore[operator]

                self._functions[name] = count
                callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(count)
                self._callbacks.append(callback)
                self._destroyers[name] = ctypes.cast(callback, ctypes.c_void_p).value or 0


@pytest.mark.parametrize("has_extension", [True, False])
def test_each_handle_is_freed_once(*, has_extension: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_extension:
        monkeypatch.setattr("byoc_dnnl.capi.extension", lambda: None)
    elif extension() is None:
        pytest.skip(extension_status())
    library = load_library()
    api = _Counting(library.handle)
    desc = MemoryDesc(api, "dnnl_memory_desc_create_with_tag", 1, (ctypes.c_int64 * 12)(4), 3, 1)
    copy = MemoryDesc(api, "dnnl_memory_desc_clone", desc.pointer)
    assert copy == desc
    assert api.freed["dnnl_memory_desc_destroy"] == 0
    del desc
    gc.collect()
    assert api.freed["dnnl_memory_desc_destroy"] == 1
    assert copy.sizes == (4,)
    del copy
    gc.collect()
    assert api.freed["dnnl_memory_desc_destroy"] == 2


def test_a_failure_names_the_call() -> None:
    engine = open_engine()
    with pytest.raises(ExecutionError) as caught:
        MemoryDesc.strided(engine, (-7,), (1,))
    expected = "oneDNN's `dnnl_memory_desc_create_with_strides`: failed; got status 2 (invalid arguments)"
    assert str(caught.value) == expected


def test_layouts() -> None:
    engine = open_engine()
    plain = MemoryDesc.strided(engine, (2, 3, 4, 5))
    assert (str(plain), plain.nbytes, plain.is_row_major()) == ("abcd", 480, True)
    last = MemoryDesc.strided(engine, (2, 4, 5, 3)).permuted((0, 3, 1, 2))
    assert (str(last), last.sizes, last.is_row_major()) == ("acdb", (2, 3, 4, 5), False)
    assert last != plain
    assert last.permuted((0, 2, 3, 1)) == MemoryDesc.strided(engine, (2, 4, 5, 3))
    assert plain.reshaped((6, 20)) == MemoryDesc.strided(engine, (6, 20))
    assert last.reshaped((6, 20)) is None
    assert MemoryDesc.strided(engine, (1, 3), (100, 1)).is_row_major()
    assert str(MemoryDesc.any_layout(engine, (2, 3))) == "any"


def test_blocks_are_axes() -> None:
    engine = open_engine()
    desc = MemoryDesc(engine.api, "dnnl_memory_desc_create_with_tag", 4, dims_array((3, 32, 4, 5)), 3, NCHW16C)
    assert (str(desc), desc.is_blocked(), desc.is_padded()) == ("aBcd16b", True, False)
    seen = desc.without_blocks(engine)
    assert seen is not None
    assert (seen.sizes, seen.plain_order()) == ((3, 2, 16, 4, 5), (0, 1, 3, 4, 2))
    last = MemoryDesc.strided(engine, (2, 4, 5, 3)).permuted((0, 3, 1, 2))
    assert last.without_blocks(engine) == last
    padded = MemoryDesc(engine.api, "dnnl_memory_desc_create_with_tag", 4, dims_array((3, 24, 4, 5)), 3, NCHW16C)
    assert padded.is_padded()
    assert padded.without_blocks(engine) is None


def test_one_block_stands_behind_longer_axes() -> None:
    engine = open_engine()
    desc = MemoryDesc(engine.api, "dnnl_memory_desc_create_with_tag", 4, dims_array((2, 16, 4, 5)), 3, NCHW16C)
    assert str(desc) == "aBcd16b"


@pytest.mark.parametrize(
    ("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2), ("float16", 2), ("int32", 4), ("int8", 1), ("uint8", 1)]
)
def test_dtypes(dtype: str, itemsize: int) -> None:
    desc = MemoryDesc.strided(open_engine(), (3, 5), dtype=dtype)
    assert (desc.dtype, desc.nbytes) == (dtype, 15 * itemsize)
    assert desc.permuted((1, 0)).dtype == dtype
    assert (desc == MemoryDesc.strided(open_engine(), (3, 5))) is (dtype == "float32")
    assert MemoryDesc.any_layout(open_engine(), (3, 5), dtype).dtype == dtype


def test_the_number_of_threads_is_that_of_the_block() -> None:
    library, engine = load_library(), Engine(load_library())
    if library.runtime.name != "OPENMP":
        pytest.skip("no OpenMP")
    before = library.handle.omp_get_max_threads()
    with engine.threads(before + 1):
        assert library.handle.omp_get_max_threads() == before + 1
    assert library.handle.omp_get_max_threads() == before


def test_the_cache_of_primitives_is_off() -> None:
    capacity = ctypes.c_int(-1)
    open_engine().api.call("dnnl_get_primitive_cache_capacity", ctypes.byref(capacity))
    assert capacity.value == 0


@pytest.mark.skipif(extension() is None, reason=extension_status())
def test_owners_free_nothing_when_the_process_ends() -> None:
    script = (
        "import ctypes\n"
        "from byoc_dnnl.extension import extension\n"
        "native = extension()\n"
        "callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda pointer: print('freed', pointer) or 0)\n"
        "address = ctypes.cast(callback, ctypes.c_void_p).value\n"
        "owners = [native.own(number, address) for number in (1, 2)]\n"
        "owners.pop()\n"
        "print('ending')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["freed 2", "ending", ""]
