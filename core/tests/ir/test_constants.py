"""The constant store: equal arrays once, different arrays never merged, nothing writable."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dtypes import all_dtypes, to_numpy
from byoc_core.errors import IRError
from byoc_core.ir import Constant, ConstantStore, digest_of, tensor
from hypothesis import given
from hypothesis import strategies as st

byte_strings = st.binary(min_size=8, max_size=8)


def floats_of(bits: int) -> npt.NDArray[np.float32]:
    return np.array([bits], np.uint32).view(np.float32)


def test_equal_arrays_are_stored_once() -> None:
    store = ConstantStore()
    first = store.add(np.arange(6, dtype=np.float32).reshape(2, 3))
    second = store.add(np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)))
    assert first == second
    assert len(store) == 1
    assert list(store) == [first.digest]
    assert first.type == tensor((2, 3), "float32")
    np.testing.assert_array_equal(store[first.digest], [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.zeros(4, np.int8), np.zeros(4, np.uint8)),
        (np.zeros(1, np.float32), np.zeros(1, np.int32)),
        (np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)),
        (np.zeros((), np.float32), np.zeros((1,), np.float32)),
        (np.zeros((0, 2), np.float32), np.zeros((2, 0), np.float32)),
        (np.array([0.0]), np.array([-0.0])),
        (floats_of(0x7FC00000), floats_of(0x7FC00001)),
        (floats_of(0x7FC00000), floats_of(0xFFC00000)),
        (np.zeros(2, "float16"), np.zeros(2, to_numpy("bfloat16"))),
    ],
)
def test_different_arrays_never_merge(left: npt.NDArray[np.generic], right: npt.NDArray[np.generic]) -> None:
    store = ConstantStore()
    assert store.add(left) != store.add(right)
    assert len(store) == 2
    for array in (left, right):
        kept = store[digest_of(array)]
        assert (kept.dtype, kept.shape, kept.tobytes()) == (array.dtype, array.shape, array.tobytes())


@given(byte_strings, byte_strings)
def test_the_digest_tells_all_bytes_apart(left: bytes, right: bytes) -> None:
    for dtype in (np.float32, np.int64):
        digests = {digest_of(np.frombuffer(data, dtype)) for data in (left, right)}
        assert len(digests) == len({left, right})


def test_the_digest_is_sha256_of_dtype_shape_and_bytes() -> None:
    array = np.arange(4, dtype=np.int16).reshape(2, 2)
    assert digest_of(array) == hashlib.sha256(b"int16[2, 2]" + array.tobytes()).hexdigest()
    assert digest_of(array[:, ::-1]) == digest_of(np.ascontiguousarray(array[:, ::-1]))


@pytest.mark.parametrize("dtype", all_dtypes())
def test_every_dtype_is_stored(dtype: str) -> None:
    constant = ConstantStore().add(np.zeros((2, 0, 3), to_numpy(dtype)))
    assert constant.type == tensor((2, 0, 3), dtype)
    assert len(constant.digest) == 64


@pytest.mark.parametrize("array", [np.ones(3), np.ones((2, 2))[:, :1], np.ones(3)[::-1], np.float32(3)])
def test_stored_arrays_are_read_only(array: npt.NDArray[np.generic]) -> None:
    store = ConstantStore()
    kept = store[store.add(array).digest]
    assert not kept.flags.writeable
    assert kept.flags.c_contiguous
    with pytest.raises(ValueError, match="read-only"):
        kept[...] = 0


def test_writing_to_the_source_does_not_reach_the_store() -> None:
    source = np.zeros(4)
    locked = source.view()
    locked.flags.writeable = False
    store = ConstantStore()
    constants = [store.add(source), store.add(locked)]
    source[:] = 1
    assert all(not store[constant.digest].any() for constant in constants)


def test_what_nobody_can_write_to_is_not_copied() -> None:
    frozen = np.frombuffer(bytes(16), np.float32)
    owned = np.zeros(3)
    owned.flags.writeable = False
    store = ConstantStore()
    assert np.shares_memory(store[store.add(frozen).digest], frozen)
    assert np.shares_memory(store[store.add(owned).digest], owned)


def test_a_read_only_view_of_a_bytearray_is_copied() -> None:
    buffer = bytearray(16)
    array = np.frombuffer(buffer, np.float32)
    array.flags.writeable = False
    store = ConstantStore()
    constant = store.add(array)
    buffer[0] = 255
    assert digest_of(store[constant.digest]) == constant.digest


def test_adopting_checks_the_type_and_does_not_copy() -> None:
    array = np.arange(3.0)
    constant = Constant(digest_of(array), tensor((3,), "float64"))
    store = ConstantStore()
    store.adopt(constant, array)
    assert np.shares_memory(store[constant.digest], array)
    assert not store[constant.digest].flags.writeable
    with pytest.raises(IRError) as caught:
        store.adopt(constant, np.zeros(4, np.float32))
    assert str(caught.value) == (
        'constant: the array does not have the constant\'s type; got float32[4], expected R.Tensor((3,), "float64")'
    )


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.zeros(2, ">f4"), np.zeros(1, "M8[s]")])
def test_what_has_no_dtype_is_refused(array: npt.NDArray[np.generic]) -> None:
    with pytest.raises(IRError, match="has no byoc counterpart"):
        ConstantStore().add(array)
