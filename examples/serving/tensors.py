"""Bodies of requests and responses: named tensors as JSON, as npz or, for a single tensor, as npy.

The format of npy files: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html. An npz file is a zip
file of npy files. Bodies come from strangers: headers are held against the bytes received before any array is made, and
pickles are refused.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from examples.npz import write_npz

__all__ = ["JSON", "NPY", "NPZ", "BodyError", "read_body", "write_body"]

Array = npt.NDArray[Any]

JSON, NPY, NPZ = "application/json", "application/x-npy", "application/x-npz"
_NUMBERS = "biufc"


class BodyError(Exception):
    """A body that cannot be read or written.

    Args:
        status: the HTTP status.
        problem: the text for the client.
    """

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


def read_body(media_type: str, body: bytes, dtypes: Mapping[str, str], max_nbytes: int) -> dict[str, Array]:
    """Return the tensors of a body by name; the names need not be inputs of the model.

    Args:
        media_type: the content type, without parameters.
        body: the body.
        dtypes: the dtype of each input of the model. Integers of JSON become floats for an input of floats.
        max_nbytes: the most bytes of all arrays of an npz body.

    Raises:
        BodyError: 415 for an unknown media type, 413 for arrays that are too large, 400 for a malformed body.
    """
    if media_type == NPY:
        if len(dtypes) != 1:
            raise BodyError(415, f"the model has {len(dtypes)} inputs: send {NPZ} or {JSON}")
        return {next(iter(dtypes)): _read_npy(body)}
    if media_type == NPZ:
        return _read_npz(body, max_nbytes)
    if media_type == JSON:
        return _read_json(body, dtypes)
    raise BodyError(415, f"content type `{media_type}`: send {JSON}, {NPY} or {NPZ}")


def write_body(media_type: str, tensors: Mapping[str, Array]) -> bytes:
    """Return tensors as a body; npy takes a single tensor.

    Raises:
        BodyError: 406: the media type has no way to write the tensors.
    """
    if media_type == JSON:
        try:
            text = json.dumps({"outputs": {name: a.tolist() for name, a in tensors.items()}}, allow_nan=False)
        except ValueError:
            raise BodyError(406, f"JSON has no infinity and no NaN, and an output has: accept {NPZ}") from None
        return text.encode()
    file = io.BytesIO()
    if media_type == NPZ:
        write_npz(file, tensors)
        return file.getvalue()
    if len(tensors) != 1:
        raise BodyError(406, f"the model has {len(tensors)} outputs: accept {NPZ} or {JSON}")
    np.save(file, next(iter(tensors.values())), allow_pickle=False)
    return file.getvalue()


def _read_json(body: bytes, dtypes: Mapping[str, str]) -> dict[str, Array]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BodyError(400, f"the body is no JSON: {error}") from None
    inputs = document.get("inputs") if isinstance(document, dict) else None
    if not isinstance(inputs, dict):
        raise BodyError(400, 'expected {"inputs": {NAME: NESTED LISTS OF NUMBERS}}')
    return {name: _from_lists(name, value, dtypes.get(name)) for name, value in inputs.items()}


def _from_lists(name: str, value: object, dtype: str | None) -> Array:
    try:
        array = np.asarray(value)
    except ValueError:
        raise BodyError(400, f"input `{name}`: the nested lists have different lengths or depths") from None
    if array.dtype.kind not in _NUMBERS:
        raise BodyError(400, f"input `{name}`: expected a number or nested lists of numbers")
    if dtype is not None and (array.dtype.kind != "f" or not array.size) and np.dtype(dtype).kind == "f":
        return array.astype(dtype)
    return array if array.size or dtype is None else array.astype(dtype)


def _read_npz(body: bytes, max_nbytes: int) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > max_nbytes:  # reading stops at these sizes
                raise BodyError(413, f"the arrays have more than {max_nbytes} bytes")
            return {member.filename.removesuffix(".npy"): _read_npy(archive.read(member)) for member in members}
    except (zipfile.BadZipFile, zlib.error, ValueError, RuntimeError, EOFError, OSError) as error:
        raise BodyError(400, f"the body is no npz file: {error}") from None


def _read_npy(data: bytes) -> Array:
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise BodyError(400, f"npy version {version} is not read")
    except ValueError as error:
        raise BodyError(400, f"the body is no npy file: {error}") from None
    offset = file.tell()
    if dtype.kind not in _NUMBERS:
        raise BodyError(400, f"an array of {dtype} is no array of numbers")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data) - offset:
        raise BodyError(400, f"{len(data) - offset} bytes are no array of {dtype} with shape {list(shape)}")
    return np.ndarray(shape, dtype, buffer=data, offset=offset, order="F" if is_fortran else "C")
