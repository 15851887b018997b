"""Files of named tensors: the layout of safetensors, .npz files, and damaged files."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import pytest
from byoc_core.artifact import read_tensors
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ArtifactError, WeightsError
from byoc_core.runtime.array_files import load_arrays, save_arrays
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


def twice(first: str, second: str, value: Any = None) -> bytes:
    """Return a file with a name given twice, perhaps spelled in another way."""
    text = json.dumps(entry() if value is None else value)
    return content(f"{{{json.dumps(first)}:{text},{second}:{text}}}".encode())


DTYPES = st.sampled_from(("float32", "float64", "int8", "int64", "bool", "float16", "uint16"))


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0))),
        max_size=4,
    )
)
def test_written_tensors_are_read(tensors: dict[str, np.ndarray]) -> None:
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
        (content({"x": entry(shape=[2**40, 2**40])}), "x: the shape is too large"),
        (content({"x": entry(shape=[0, 2**63 - 1], data_offsets=[0, 0])}, b""), "x: the shape is too large"),
        (content({"x": entry(shape=[2**62, 0, 2**62], data_offsets=[0, 0])}, b""), "x: the shape is too large"),
        (content({"x": entry(data_offsets=[0])}), "x.data_offsets: a begin and an end are required"),
        (content({"x": entry(data_offsets=[8, 32])}), "x: the range of bytes does not fit"),
        (content({"x": entry()}, b"short"), "x: the range of bytes does not fit"),
        (content({"x": entry()}, bytes(25)), "bytes follow the last tensor"),
        (content({"x": entry(), "y": entry()}), "y: the range of bytes does not fit"),
        (content({"x": entry(more=1)}), "x.more: Extra inputs are not permitted"),
        (content({"__metadata__": {"a": 1}, "x": entry()}), "a: A text is required"),
        (twice("x", '"x"'), "x: the header has the name twice"),
        (twice("x", '"\\u0078"'), "x: the header has the name twice"),
        (twice("__metadata__", '"__metadata__"', {"a": "b"}), "__metadata__: the header has the name twice"),
        (
            content(b'{"x":{"dtype":"I8","shape":[1],"data_offsets":[0,1],"dtype":"U8"}}', b"1"),
            "x: `dtype` stands twice",
        ),
        (content(b'{"__metadata__":{"a":"b","a":"c"}}', b""), "__metadata__: `a` stands twice"),
        (
            content({"flags": {"dtype": "BOOL", "shape": [3], "data_offsets": [0, 3]}}, b"\0\1\2"),
            "flags: the tensor of bools has bytes other than 0 and 1, such as 2",
        ),
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


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (
            "{" + ",".join(f'"t{index}":0' for index in [*range(120_000), 119_999]) + "}",
            "t119999: the header has the name twice",
        ),
        (
            "{" + ",".join(f'"t{index}":0' for index in range(20_000)) + ',"a":[' + '{"d":1,"d":2},' * 20_000 + "0]}",
            "0: An object is required",
        ),
    ],
    ids=["repeated name", "repeated names of discarded objects"],
)
def test_hostile_headers_take_linear_time(tmp_path: Path, header: str, problem: str) -> None:
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(content(header.encode(), b""))
    start = process_time()
    with pytest.raises(WeightsError, match=problem):
        read_tensors(path)
    assert process_time() - start < 5  # 0.2 s is usual; work growing with the square takes a minute


def test_bools_of_an_npz_file_are_0_and_1(tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", flags=np.array([[True, False], [False, True]]).T, none=np.zeros((0, 3), np.bool_))
    assert read_tensors(tmp_path / "good.npz").tensors["flags"].tolist() == [[True, False], [False, True]]
    np.savez(tmp_path / "bad.npz", flags=np.array([1, 7], np.uint8).view(np.bool_))
    with pytest.raises(WeightsError) as caught:
        read_tensors(tmp_path / "bad.npz")
    assert str(caught.value) == (
        f"file `{tmp_path / 'bad.npz'}`: flags: the tensor of bools has bytes other than 0 and 1, such as 7"
    )


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4),
    st.lists(st.sampled_from((0, 0, 1, 1, 1, 2)), min_size=4, max_size=4),
)
def test_a_file_is_read_if_each_name_stands_once_and_bools_are_bools(names: list[str], data: list[int]) -> None:
    pairs = [f'"{name}":{{"dtype":"BOOL","shape":[1],"data_offsets":[{i},{i + 1}]}}' for i, name in enumerate(names)]
    used = bytes(data[: len(names)])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "bools.safetensors"
        path.write_bytes(content(f"{{{','.join(pairs)}}}".encode(), used))
        if len(set(names)) < len(names) or max(used) > 1:
            with pytest.raises(WeightsError):
                read_tensors(path)
        else:
            found = read_tensors(path).tensors
            assert {name: bool(array[0]) for name, array in found.items()} == dict(
                zip(names, map(bool, used), strict=True)
            )


def check_entries(tensors: Mapping[str, np.ndarray], path: Path) -> None:
    """Check that arrays are as the header of a safetensors file states."""
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header.pop("__metadata__", None)
    assert tensors.keys() == header.keys()
    for name, array in tensors.items():
        begin, end = header[name]["data_offsets"]
        assert encode_safetensors({"": array}).count(json.dumps(header[name]["dtype"]).encode()) == 1
        assert list(array.shape) == header[name]["shape"]
        assert array.nbytes == len(array.tobytes()) == end - begin


@given(st.data())
def test_changed_bytes_raise_only_own_errors(data: st.DataObject) -> None:
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
        check_entries(tensors, path)


@st.composite
def npz_files(draw: st.DrawFn) -> bytes:
    save = draw(st.sampled_from((np.savez, np.savez_compressed)))
    file = io.BytesIO()
    save(file, x=FLOATS, y=np.arange(1000, dtype=np.int16))
    data = bytearray(file.getvalue())
    for _ in range(draw(st.integers(1, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: len(data) - draw(st.integers(0, 4))])


@given(npz_files())
def test_changed_npz_files_raise_only_own_errors(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "changed.npz"
        path.write_bytes(data)
        try:
            arrays = load_arrays(path)
        except ArtifactError as error:
            assert str(error) == f"file `{path}`: is not an .npz file of arrays"  # noqa: PT017
            return
        assert sum(array.nbytes for array in arrays.values()) <= FLOATS.nbytes + 2000


def npz_member(
    header: str | bytes,
    data: bytes = FLOATS.tobytes(),
    key: str = "x.npy",
    compression: int = zipfile.ZIP_STORED,
    **changes: int,
) -> bytes:
    """Return a file with one array of any header; changes are of the fields of the member in the directory."""
    text = header.encode() if isinstance(header, str) else header
    text += b" " * (-len(text) - 11 & 63) + b"\n"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr(key, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)
    content = bytearray(file.getvalue())
    for position, signature in ((6, b"PK\x03\x04"), (8, b"PK\x01\x02")):
        start = content.index(signature) + position
        flags, method = struct.unpack_from("<HH", content, start)
        struct.pack_into("<HH", content, start, changes.get("flags", flags), changes.get("method", method))
    return bytes(content)


def npy_header(descr: str = "<f4", shape: str = "(2, 3)") -> str:
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"


WHOLE = npz_member(npy_header())
DISTANT = WHOLE[:-6] + struct.pack("<I", 2**32 - 2) + WHOLE[-2:]  # the offset of the directory is beyond the file


@pytest.mark.parametrize(
    "data",
    [
        npz_member(npy_header(), method=99),
        npz_member(npy_header(), flags=1),
        npz_member(npy_header(), method=zipfile.ZIP_DEFLATED),
        npz_member(npy_header(shape=f"({2**50},)")),
        npz_member(npy_header(shape=f"({2**63 - 1}, 2)")),
        npz_member(npy_header(shape="(-2, -3)")),
        npz_member(npy_header(shape="(True, 6)")),
        npz_member(npy_header(shape=f"(0, {2**70})"), b""),
        npz_member(npy_header(), FLOATS.tobytes() + b"more"),
        npz_member(npy_header("|O"), bytes(48)),
        npz_member("{'descr': [('a'," * 9),
        npz_member("(" * 900),
        npz_member("{1: 2}"),
        npz_member(npy_header(), key="x"),
        npz_member(npy_header(), key="x|bfloat16.npy"),
        npz_member(npy_header("<f8", "(3,)"), key="x|float32.npy"),
        npz_member(npy_header(), key="x|float33.npy"),
        b"PK\x03\x04",
        DISTANT,
    ],
)
def test_damaged_npz_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(data)
    with pytest.raises(WeightsError) as caught:
        read_tensors(path)
    assert str(caught.value) == f"file `{path}`: is not an .npz file of arrays"


def test_the_file_behind_the_damaged_files_is_read(tmp_path: Path) -> None:
    (tmp_path / "good.npz").write_bytes(npz_member(npy_header()))
    np.testing.assert_array_equal(read_tensors(tmp_path / "good.npz").tensors["x"], FLOATS)
    (tmp_path / "good.npz").write_bytes(npz_member(npy_header(shape="(0, 5)"), b""))
    assert read_tensors(tmp_path / "good.npz").tensors["x"].shape == (0, 5)


def test_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"x": FLOATS, "x|float32": FLOATS}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(WeightsError):
        read_tensors(tmp_path / "a.npz")


def test_no_memory_is_allocated_for_sizes_beyond_the_data(tmp_path: Path) -> None:
    nbytes = 2**31
    data = bytearray(npz_member(npy_header("|u1", f"({nbytes},)"), bytes(1000), compression=zipfile.ZIP_DEFLATED))
    for position, signature in ((22, b"PK\x03\x04"), (24, b"PK\x01\x02")):
        start = data.index(signature) + position
        (size,) = struct.unpack_from("<I", data, start)
        struct.pack_into("<I", data, start, size - 1000 + nbytes)
    path = tmp_path / "large.npz"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(ArtifactError):
            load_arrays(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
