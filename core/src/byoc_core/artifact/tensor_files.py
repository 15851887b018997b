"""Files of named tensors: ``.safetensors`` files, mapped; and ``.npz`` files of numpy.

The layout of a safetensors file: eight bytes with the length of the header, least significant byte first; the header,
JSON text with dtype, shape and range of bytes of each tensor; and the bytes of the tensors, without gaps. Text may
stand beside the tensors under the name ``__metadata__``. Nothing of a file is trusted before these laws are checked.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from byoc_core.artifact.archive import map_file
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.errors import ArtifactError, WeightsError
from byoc_core.runtime.array_files import load_arrays
from byoc_core.runtime.json_records import SIZE, MisfitError, list_of, mapping_of, parse_json, record, text
from byoc_core.runtime.module import NDArray

__all__ = ["TensorFile", "read_tensors"]

_ZIP = b"PK\x03\x04"
_METADATA = "__metadata__"
_PREFIX_NBYTES = 8
_MAX_HEADER_NBYTES = 100_000_000
_MAX_NBYTES = 2**63 - 1

_DTYPES = MappingProxyType(
    {
        "BOOL": "bool",
        "U8": "uint8",
        "I8": "int8",
        "F8_E5M2": "float8_e5m2",
        "F8_E4M3": "float8_e4m3fn",
        "F8_E8M0": "float8_e8m0fnu",
        "I16": "int16",
        "U16": "uint16",
        "F16": "float16",
        "BF16": "bfloat16",
        "I32": "int32",
        "U32": "uint32",
        "F32": "float32",
        "F64": "float64",
        "I64": "int64",
        "U64": "uint64",
    }
)


@dataclass(frozen=True)
class TensorFile:
    """The content of a file of tensors.

    Attributes:
        tensors: read-only arrays by name; arrays of a safetensors file lie in the mapping of the file.
        metadata: the text beside the tensors, by name.
    """

    tensors: Mapping[str, NDArray]
    metadata: Mapping[str, str]


def read_tensors(path: str | os.PathLike[str]) -> TensorFile:
    """Read a file of tensors; the format is recognised by the first bytes.

    Raises:
        WeightsError: the file is neither a safetensors file nor an .npz file, or is damaged.
        OSError: the file cannot be read.
    """
    where = f"file `{os.fspath(path)}`"
    data = map_file(path)
    if data[: len(_ZIP)] == _ZIP:
        try:
            arrays = load_arrays(path)
        except ArtifactError as error:
            raise WeightsError(where, error.problem) from error
        for name, array in arrays.items():
            try:
                _check_bools(name, np.ascontiguousarray(array))
            except MisfitError as misfit:
                raise WeightsError(where, str(misfit)) from misfit
            array.flags.writeable = False
        return TensorFile(arrays, {})
    try:
        return _read_safetensors(data)
    except MisfitError as misfit:
        raise WeightsError(
            where, f"is no file of tensors: {misfit}", expected="a .safetensors file, or an .npz file of numpy"
        ) from misfit


def _read_safetensors(data: memoryview) -> TensorFile:
    if len(data) < _PREFIX_NBYTES:
        raise MisfitError("the file ends before the length of the header")
    header_nbytes = int.from_bytes(data[:_PREFIX_NBYTES], "little")
    start = _PREFIX_NBYTES + header_nbytes
    if header_nbytes > _MAX_HEADER_NBYTES or start > len(data):
        raise MisfitError("the header is longer than the file")
    header = _parse_header(bytes(data[_PREFIX_NBYTES:start]))
    metadata = _read_metadata(header.pop(_METADATA, {}))
    entries = _read_entries(header)
    content = data[start:]
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        itemsize = dtype_info(entry.dtype).itemsize
        nbytes = itemsize * math.prod(entry.shape)
        if itemsize * math.prod(filter(None, entry.shape)) > _MAX_NBYTES:  # numpy's limit, for empty arrays too
            raise MisfitError("the shape is too large for an array").inside(name)
        if entry.begin != end or entry.end - entry.begin != nbytes or entry.end > len(content):
            raise MisfitError("the range of bytes does not fit dtype, shape and file").inside(name)
        end = entry.end
    if end != len(content):
        raise MisfitError("bytes follow the last tensor")
    tensors = {name: _to_array(content, entry) for name, entry in entries.items()}
    for name, array in tensors.items():
        _check_bools(name, array)
    return TensorFile(tensors, dict(metadata))


def _check_bools(name: str, array: NDArray) -> None:
    """Check the bytes of bools: numpy and compiled code take any other byte for an impossible value."""
    if array.dtype == np.bool_ and array.size:
        largest = int(array.reshape(-1).view(np.uint8).max())
        if largest > 1:
            raise MisfitError(f"the tensor of bools has bytes other than 0 and 1, such as {largest}").inside(name)


def _parse_header(data: bytes) -> dict[str, Any]:
    """Return the header; each name of an object stands once."""
    repeated: list[tuple[dict[str, Any], str]] = []

    def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            repeated.append((found, next(name for name, count in counts.items() if count > 1)))
        return found

    try:
        header = parse_json(data, make_object)
    except ValueError as error:
        raise MisfitError("the header is not JSON text") from error
    if type(header) is not dict:
        raise MisfitError("the header is not an object")
    tensors = {id(entry): tensor for tensor, entry in header.items()} if repeated else {}
    for owner, name in repeated:  # holds the objects, so no other object has the same id
        if owner is header:
            raise MisfitError("the header has the name twice").inside(name)
        # An object missing in the header belonged to a name given twice.
        tensor = tensors.get(id(owner))
        if tensor is not None:
            raise MisfitError(f"`{name}` stands twice").inside(tensor)
    return header


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _to_array(content: memoryview, entry: _Entry) -> NDArray:
    # The tensors of a file are not aligned; numpy reads such arrays, and compiled code gets aligned copies.
    part = content[entry.begin : entry.end]
    array: NDArray = np.frombuffer(part, np.uint8).view(to_numpy(entry.dtype)).reshape(entry.shape)
    return array


def _new_entry(dtype: str, shape: tuple[int, ...], data_offsets: tuple[int, ...]) -> _Entry:
    if len(data_offsets) != 2:
        raise MisfitError("a begin and an end are required").inside("data_offsets")
    return _Entry(dtype, shape, *data_offsets)


def _read_dtype(value: Any) -> str:
    if type(value) is not str or value not in _DTYPES:
        raise MisfitError(f"the dtype is none of {', '.join(_DTYPES)}")
    return _DTYPES[value]


_read_metadata = mapping_of(text(), text())
_read_entries = mapping_of(
    text(min_length=1),
    record(_new_entry, dtype=_read_dtype, shape=list_of(SIZE, max_length=32), data_offsets=list_of(SIZE, max_length=2)),
)
