"""Arrays of strings and dictionaries from the arrays of compiled models, with and without the C extension."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.kernels import strings as reference
from byoc_core.runtime import maps
from byoc_core.runtime.extension import extension
from byoc_core.runtime.maps import unpack_maps
from byoc_core.runtime.strings import unpack_strings
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.interpreter

_TEXTS = st.one_of(st.binary(max_size=12), st.text(max_size=80).map(str.encode))
_KEYS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=12).map(lambda keys: (np.array(keys, np.int64),)),
    st.lists(st.text(max_size=6), unique=True, max_size=12).map(reference.pack_strings),
)


@given(st.lists(_TEXTS, min_size=1, max_size=8), st.data())
def test_strings_equal_the_reference(labels: list[bytes], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.sampled_from(labels), max_size=30))
    length = np.array([len(row) for row in rows], np.int64)
    shape = data.draw(st.sampled_from([(len(rows),), (len(rows), 1), (1, len(rows), 1)]))
    arrays = np.frombuffer(b"".join(rows), np.uint8), length.reshape(shape)
    found, expected = unpack_strings(*arrays), reference.unpack_strings(*arrays)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tolist() == expected.tolist()


def test_strings_of_strided_arrays() -> None:
    data, lengths = reference.pack_strings(["a", "bc", "", "é"])
    strided = np.repeat(data, 2)[::2], np.repeat(lengths, 3)[::3]
    assert unpack_strings(*strided).tolist() == ["a", "bc", "", "é"]


def test_equal_strings_are_one_object() -> None:
    if extension() is None:
        pytest.skip("the C extension is missing")
    found = unpack_strings(*reference.pack_strings(["höher", "low"] * 50))
    assert len({id(item) for item in found}) == 2


@given(_KEYS, st.integers(0, 6), st.sampled_from(["float32", "float64", "float16", "int64", "int32"]), st.data())
def test_maps_equal_rows_with_keys(keys: tuple[Any, ...], count: int, dtype: str, data: st.DataObject) -> None:
    names = (keys[0] if len(keys) == 1 else reference.unpack_strings(*keys)).tolist()
    seed = data.draw(st.integers(0, 2**32 - 1))
    values = (np.random.default_rng(seed).standard_normal((count, len(names))) * 100).astype(dtype)
    layout = data.draw(st.sampled_from([np.ascontiguousarray, np.asfortranarray]))
    found = unpack_maps(*keys, layout(values))
    assert found == [dict(zip(names, row, strict=True)) for row in values.tolist()]
    assert {type(number) for row in found for number in row.values()} <= {int if "int" in dtype else float}


def test_maps_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "extension", lambda: None)
    assert unpack_maps(np.array([3, 5]), np.array([[0.5, 1.0]])) == [{3: 0.5, 5: 1.0}]


def test_maps_are_independent() -> None:
    first, second = unpack_maps(np.arange(2), np.zeros((2, 2), np.float32))
    first[0] = 7.0
    first["new"] = 1.0
    assert second == {0: 0.0, 1: 0.0}
    assert unpack_maps(np.arange(2), np.ones((1, 2), np.float32)) == [{0: 1.0, 1: 1.0}]


def test_keys_may_change_their_list_when_hashed() -> None:
    native = extension()
    if native is None:
        pytest.skip("the C extension is missing")

    class Clearing:
        """A key that empties the list of keys and drops the other keys when hashed."""

        def __init__(self, keys: list[Any]) -> None:
            self._keys = keys

        def __hash__(self) -> int:
            self._keys.clear()
            return 1

    for position in range(3):
        keys: list[Any] = [("other", number) for number in range(2)]  # held by the list alone
        clearing = Clearing(keys)
        keys.insert(position, clearing)
        expected: list[Any] = [("other", number) for number in range(2)]
        expected.insert(position, clearing)
        values = np.arange(6, dtype=np.float64).reshape(2, 3)
        found = native.unpack_maps(keys, values)
        assert found == [dict(zip(expected, row, strict=True)) for row in values.tolist()]
        assert keys == []
