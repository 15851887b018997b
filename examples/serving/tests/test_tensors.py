"""Bodies: what is written is read again, and malformed bodies of strangers are refused."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from examples.serving.tensors import JSON, NPY, NPZ, BodyError, read_body, write_body

DTYPES = {"x": "float32", "ids": "int64"}
TENSORS = {"x": np.array([[0.5, -2]], np.float32), "ids": np.array([[3, 4], [5, 6]]).T, "file": np.zeros((0, 3))}


def npy(array: npt.NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def npy_of(header: str, data: bytes = b"") -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def refusal(
    media_type: str, body: bytes, dtypes: dict[str, str] = DTYPES, max_nbytes: int = 1 << 20
) -> tuple[int, str]:
    with pytest.raises(BodyError) as caught:
        read_body(media_type, body, dtypes, max_nbytes)
    return caught.value.status, str(caught.value)


def test_npz_bodies_are_read_as_written_by_either_side() -> None:
    body = write_body(NPZ, TENSORS)
    with np.load(io.BytesIO(body)) as loaded:
        assert sorted(loaded.files) == sorted(TENSORS)
    found = read_body(NPZ, body, DTYPES, len(body))
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    compressed = io.BytesIO()
    np.savez_compressed(compressed, x=TENSORS["x"])
    np.testing.assert_array_equal(read_body(NPZ, compressed.getvalue(), DTYPES, 4096)["x"], TENSORS["x"])


def test_npy_bodies_hold_the_only_tensor() -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    found = read_body(NPY, npy(array), {"x": "float64"}, 1 << 20)
    np.testing.assert_array_equal(found["x"], array)
    np.testing.assert_array_equal(np.load(io.BytesIO(write_body(NPY, {"y": array}))), array)
    assert refusal(NPY, npy(array)) == (415, f"the model has 2 inputs: send {NPZ} or {JSON}")
    with pytest.raises(BodyError, match=f"the model has 2 outputs: accept {NPZ} or {JSON}"):
        write_body(NPY, {"y": array, "z": array})


def test_json_numbers_become_the_dtypes_of_the_model() -> None:
    body = json.dumps({"inputs": {"x": [[1, 2]], "ids": [[3], [4]], "more": [0.5]}}).encode()
    found = read_body(JSON, body, DTYPES, 0)
    assert {name: (a.dtype.name, a.tolist()) for name, a in found.items()} == {
        "x": ("float32", [[1.0, 2.0]]),
        "ids": ("int64", [[3], [4]]),
        "more": ("float64", [0.5]),
    }
    assert read_body(JSON, b'{"inputs": {"ids": [[]]}}', DTYPES, 0)["ids"].dtype == np.int64
    assert json.loads(write_body(JSON, {"y": np.array([1.5], np.float32)})) == {"outputs": {"y": [1.5]}}
    with pytest.raises(BodyError, match="JSON has no infinity and no NaN"):
        write_body(JSON, {"y": np.array([np.inf])})


@pytest.mark.parametrize(
    ("media_type", "body", "status", "text"),
    [
        ("text/plain", b"1", 415, f"content type `text/plain`: send {JSON}, {NPY} or {NPZ}"),
        (JSON, b"{", 400, "the body is no JSON: "),
        (JSON, b"\xff", 400, "the body is no JSON: "),
        (JSON, b"[" * 200_000, 400, "the body is no JSON: "),
        (JSON, b"[1]", 400, 'expected {"inputs": '),
        (JSON, b'{"x": [1]}', 400, 'expected {"inputs": '),
        (JSON, b'{"inputs": {"x": [[1], [2, 3]]}}', 400, "input `x`: the nested lists have different lengths"),
        (JSON, b'{"inputs": {"x": ["1"]}}', 400, "input `x`: expected a number or nested lists of numbers"),
        (JSON, b'{"inputs": {"x": null}}', 400, "input `x`: expected a number or nested lists of numbers"),
        (JSON, b'{"inputs": {"ids": [1' + b"0" * 40 + b"]}}", 400, "input `ids`: expected a number or nested lists"),
        (NPZ, b"PK", 400, "the body is no npz file: "),
        (NPZ, npz({"x.npy": b"text"}), 400, "the body is no npy file: "),
        (NPZ, npz({"x.npy": npy(np.array([{}]))}), 400, "an array of object is no array of numbers"),
        (NPZ, npz({"x.npy": npy(np.array(["a"]))}), 400, "an array of <U1 is no array of numbers"),
        (NPZ, npz({"x.npy": npy(np.zeros(4))[:-1]}), 400, "31 bytes are no array of float64 with shape [4]"),
        (NPZ, npz({"x.npy": bytes(2 << 20)}, zipfile.ZIP_DEFLATED), 413, "the arrays have more than 1048576 bytes"),
    ],
)
def test_malformed_bodies_are_refused(media_type: str, body: bytes, status: int, text: str) -> None:
    found = refusal(media_type, body)
    assert found[0] == status
    assert found[1].startswith(text), found[1]


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}\n", "0 bytes are no array of float32"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -1)}\n", "4 bytes are no array of float32"),
        ("{'descr': '|S0', 'fortran_order': False, 'shape': (1000000000000,)}\n", "an array of |S0 is no array of"),
        ("no header\n", "the body is no npy file: "),
    ],
)
def test_headers_that_promise_more_than_the_body_are_refused(header: str, text: str) -> None:
    data = bytes(4) if "-1" in header else b""
    status, problem = refusal(NPY, npy_of(header, data), {"x": "float32"})
    assert status == 400
    assert problem.startswith(text), problem


def test_damaged_npz_bodies_raise_nothing_else() -> None:
    body = bytearray(write_body(NPZ, TENSORS))
    for position in range(len(body)):
        damaged = bytearray(body)
        damaged[position] ^= 0xFF
        with suppress(BodyError):
            read_body(NPZ, bytes(damaged), DTYPES, 1 << 20)
