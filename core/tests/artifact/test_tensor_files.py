"""Files of named tensors: the layout of safetensors, .npz files, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.artifact import read_tensors
from byoc_core.dtypes import to_numpy
from byoc_core.errors import WeightsError
from byoc_core.runtime.array_files import save_arrays
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from core.tests.artifact.safetensors_file import encode_safetensors

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


def content(header: Any, data: bytes = FLOATS.tobytes()) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], **changes}


DTYPES = st.sampled_from(("float32", "float64", "int8", "int64", "bool", "float16", "uint16"))


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0))),
        max_size=4,
    )
)
def test_written_tensors_are_read(tensors: dict[str, np.ndarray]) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "tensors.safetensors"
        path.write_bytes(encode_safetensors(tensors, {"format": "pt"}))
        found = read_tensors(path)
        assert found.metadata == {"format": "pt"}
        assert found.tensors.keys() == tensors.keys()
        for name, array in tensors.items():
            assert (found.tensors[name].dtype, found.tensors[name].shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(found.tensors[name], array)
            assert not found.tensors[name].flags.writeable


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dtypes_unknown_to_numpy(tmp_path: Path, dtype: str) -> None:
    array = np.arange(5).astype(to_numpy(dtype))
    (tmp_path / "a.safetensors").write_bytes(encode_safetensors({"a": array}))
    save_arrays(tmp_path / "a.npz", {"a": array})
    for name in ("a.safetensors", "a.npz"):
        found = read_tensors(tmp_path / name).tensors["a"]
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_npz_files_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=FLOATS)
    np.testing.assert_array_equal(read_tensors(tmp_path / "a.npz").tensors["x"], FLOATS)
    np.savez(tmp_path / "b.npz", x=np.array([object()]))
    with pytest.raises(WeightsError, match=r"is not an \.npz file of arrays"):
        read_tensors(tmp_path / "b.npz")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file ends before the length of the header"),
        (b"\xff" * 9, "the header is longer than the file"),
        (content(b"{"), "the header is not JSON text"),
        (content([]), "the header is not an object"),
        (content({"x": 3}), "x: An object is required"),
        (content({"x": entry(dtype="F33")}), "x.dtype: the dtype is none of"),
        (content({"x": entry(dtype=None)}), "x.dtype: the dtype is none of"),
        (content({"x": entry(shape=[2, -3])}), "x.shape.1: An integer from 0"),
        (content({"x": entry(shape=[2, True])}), "x.shape.1: An integer"),
        (content({"x": entry(shape=[2, 2])}), "x: the range of bytes does not fit"),
        (content({"x": entry(shape=[2**40, 2**40])}), "x: the range of bytes does not fit"),
        (content({"x": entry(data_offsets=[0])}), "x.data_offsets: a begin and an end are required"),
        (content({"x": entry(data_offsets=[8, 32])}), "x: the range of bytes does not fit"),
        (content({"x": entry()}, b"short"), "x: the range of bytes does not fit"),
        (content({"x": entry()}, bytes(25)), "bytes follow the last tensor"),
        (content({"x": entry(), "y": entry()}), "y: the range of bytes does not fit"),
        (content({"x": entry(more=1)}), "x.more: Extra inputs are not permitted"),
        (content({"__metadata__": {"a": 1}, "x": entry()}), "a: A text is required"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(WeightsError) as caught:
        read_tensors(path)
    assert str(caught.value).startswith(f"file `{path}`: is no file of tensors: ")
    assert message in str(caught.value)


@given(st.data())
def test_changed_bytes_raise_only_own_errors(data: st.DataObject) -> None:
    from tempfile import TemporaryDirectory

    good = bytearray(encode_safetensors({"x": FLOATS, "y": FLOATS[0]}, {"format": "pt"}))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    del good[len(good) - data.draw(st.integers(0, 4)) :]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "changed.safetensors"
        path.write_bytes(good)
        try:
            tensors = read_tensors(path).tensors
        except WeightsError:
            return
        for array in tensors.values():
            assert array.tobytes() is not None
