"""Conversion of ONNX tensors to numpy arrays, external data included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.errors import FrontendError

__all__ = ["DTYPES", "ELEMENT_TYPES", "dtype_of", "to_array", "to_strings"]

DTYPES: Mapping[int, str] = MappingProxyType(
    {
        onnx.TensorProto.FLOAT: "float32",
        onnx.TensorProto.UINT8: "uint8",
        onnx.TensorProto.INT8: "int8",
        onnx.TensorProto.UINT16: "uint16",
        onnx.TensorProto.INT16: "int16",
        onnx.TensorProto.INT32: "int32",
        onnx.TensorProto.INT64: "int64",
        onnx.TensorProto.BOOL: "bool",
        onnx.TensorProto.FLOAT16: "float16",
        onnx.TensorProto.DOUBLE: "float64",
        onnx.TensorProto.UINT32: "uint32",
        onnx.TensorProto.UINT64: "uint64",
        onnx.TensorProto.BFLOAT16: "bfloat16",
        onnx.TensorProto.FLOAT8E4M3FN: "float8_e4m3fn",
        onnx.TensorProto.FLOAT8E5M2: "float8_e5m2",
        onnx.TensorProto.INT4: "int4",
        **{
            getattr(onnx.TensorProto, name): dtype
            for name, dtype in (
                ("UINT4", "uint4"),
                ("INT2", "int2"),
                ("UINT2", "uint2"),
                ("FLOAT8E4M3FNUZ", "float8_e4m3fnuz"),
                ("FLOAT8E5M2FNUZ", "float8_e5m2fnuz"),
                ("FLOAT8E8M0", "float8_e8m0fnu"),
                ("FLOAT4E2M1", "float4_e2m1fn"),
                ("COMPLEX64", "complex64"),
                ("COMPLEX128", "complex128"),
            )
            if hasattr(onnx.TensorProto, name)  # added by releases of the package `onnx`
        },
    }
)
"""The dtype of each supported ONNX element type."""

ELEMENT_TYPES: Mapping[str, int] = MappingProxyType({dtype: number for number, dtype in DTYPES.items()})
"""The ONNX element type of each dtype."""

# Types with elements stored in `int32_data` as bit patterns.
_AS_BITS = frozenset(
    {
        *("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
        *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    }
)


def dtype_of(element_type: int, where: str) -> str:
    """Return the dtype of an ONNX element type.

    Raises:
        FrontendError: byoc has no such dtype, or does not import the type.
    """
    dtype = DTYPES.get(element_type)
    if dtype is None:
        type_names = {number: name for name, number in onnx.TensorProto.DataType.items()}
        raise FrontendError(
            where,
            "has an unsupported element type",
            got=type_names.get(element_type, f"number {element_type}"),
            expected="one of " + ", ".join(DTYPES.values()),
        )
    return dtype


def to_strings(tensor: onnx.TensorProto, where: str) -> npt.NDArray[np.object_]:
    """Return a tensor's strings, as ``bytes``.

    Raises:
        FrontendError: the number of strings does not fit the shape.
    """
    strings = np.empty(len(tensor.string_data), object)
    strings[:] = list(tensor.string_data)
    if any(size < 0 for size in tensor.dims):
        raise FrontendError(where, "has a negative size", got=tuple(tensor.dims))
    _check_count(where, len(strings), prod(tensor.dims), "strings")
    return strings.reshape(tuple(tensor.dims))


def to_array(tensor: onnx.TensorProto, where: str, directory: Path | None) -> npt.NDArray[np.generic]:
    """Return a tensor's elements, read-only unless converted; external data is memory-mapped.

    Args:
        tensor: the tensor.
        where: the tensor's place in the model, for messages.
        directory: the folder for external data, or ``None`` to refuse external data.

    Raises:
        FrontendError: the data is incomplete, of an unsupported type, or at a forbidden location.
    """
    dtype = to_numpy(dtype_of(tensor.data_type, where))
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape):
        raise FrontendError(where, "has a negative size", got=shape)
    bits = dtype_info(dtype.name).bits
    is_packed = bits < 8 and dtype.name != "bool"
    stored, count = (np.dtype(np.uint8), -(-prod(shape) * bits // 8)) if is_packed else (dtype, prod(shape))
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        elements = _read_external(tensor, where, directory, stored, count)
    elif tensor.HasField("raw_data"):
        _check_count(where, len(tensor.raw_data), count * stored.itemsize, "bytes of data")
        elements = np.frombuffer(tensor.raw_data, stored)
    else:
        elements = _read_typed_field(tensor, stored)
        _check_count(where, len(elements), count, "bytes of packed elements" if is_packed else "elements")
    try:
        return (_unpacked(elements, prod(shape), dtype) if is_packed else elements).reshape(shape)
    except ValueError as error:  # an empty tensor of absurd sizes
        raise FrontendError(where, "has an impossible shape", got=shape) from error


def _unpacked(data: npt.NDArray[Any], count: int, dtype: np.dtype[np.generic]) -> npt.NDArray[Any]:
    """Unpack elements of four or two bits stored together in bytes, the first in the lowest bits."""
    bits = dtype_info(dtype.name).bits
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (data[:, np.newaxis] >> shifts & ((1 << bits) - 1)).astype(np.uint8).reshape(-1)[:count]
    if dtype.name.startswith("int"):
        sign = np.int8(1 << (bits - 1))
        return ((parts.astype(np.int8) ^ sign) - sign).astype(dtype)
    return parts.astype(dtype) if dtype.name.startswith("uint") else parts.view(dtype)


def _check_count(where: str, found: int, expected: int, unit: str) -> None:
    if found != expected:
        raise FrontendError(where, f"the number of {unit} does not fit the shape", got=found, expected=expected)


def _read_typed_field(tensor: onnx.TensorProto, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    name = dtype.name
    if name == "float32":
        return np.array(tensor.float_data, dtype)
    if name == "float64":
        return np.array(tensor.double_data, dtype)
    if name in ("complex64", "complex128"):  # real and imaginary parts in turn
        parts = np.array(tensor.float_data if name == "complex64" else tensor.double_data, f"float{4 * dtype.itemsize}")
        return parts[: len(parts) // 2 * 2].view(dtype)
    if name == "int64":
        return np.array(tensor.int64_data, dtype)
    if name in ("uint32", "uint64"):
        return np.array(tensor.uint64_data, np.uint64).astype(dtype)
    if name in _AS_BITS:
        return np.array(tensor.int32_data, np.int32).astype(f"uint{8 * dtype.itemsize}").view(dtype)
    return np.array(tensor.int32_data, np.int32).astype(dtype)


def _read_external(
    tensor: onnx.TensorProto, where: str, directory: Path | None, dtype: np.dtype[np.generic], count: int
) -> npt.NDArray[np.generic]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _locate_external(entries.get("location", ""), where, directory)
    with _reading(path, where):
        size = path.stat().st_size
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", str(size - offset)))
    except ValueError as error:
        raise FrontendError(where, "has external data with a malformed offset or length", got=entries) from error
    _check_count(where, length, count * dtype.itemsize, "bytes of external data")
    if offset < 0 or offset + length > size:
        raise FrontendError(
            where,
            f"external data `{path.name}` is truncated",
            got=f"{size} bytes",
            expected=f"{offset + length} or more",
        )
    if count == 0:
        return np.empty(0, dtype)
    # Mapped as bytes: extension dtypes and unaligned offsets then need only a view.
    with _reading(path, where):
        raw = np.asarray(np.memmap(path, np.uint8, "r", offset, (length,)))
    return raw.view(dtype)


@contextmanager
def _reading(path: Path, where: str) -> Iterator[None]:
    """Convert system errors for a file named by a model to errors of the front end."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FrontendError(where, f"external data `{path.name}` cannot be read: {reason}") from error


def _locate_external(location: str, where: str, directory: Path | None) -> Path:
    """Return the file named by an external tensor, if located in the model's folder or below."""
    if directory is None:
        raise FrontendError(
            where,
            "has external data, but a model without a file has no folder for external data",
            hint="Pass the model's path to from_onnx, or load the data into the model first.",
        )
    relative = Path(location)
    unsafe = not location or "\\" in location or relative.is_absolute() or ".." in relative.parts
    path = directory / relative
    try:
        base = directory.resolve()
        path = base / relative
        unsafe = unsafe or not path.resolve().is_relative_to(base)
    except (OSError, ValueError, RuntimeError) as error:  # a NUL; links in a circle
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FrontendError(where, f"external data cannot be found: {reason}", got=repr(location)) from error
    if unsafe:
        raise FrontendError(
            where, "has external data outside the model's folder", got=repr(location), expected="a relative path"
        )
    return path
