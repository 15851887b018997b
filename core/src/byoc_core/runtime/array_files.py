"""Arrays in ``.npz`` files without pickle, including dtypes unknown to numpy; equal arrays give equal bytes."""

from __future__ import annotations

import errno
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dtypes import dtype_info, dtype_name, to_numpy
from byoc_core.errors import ArtifactError, IRTypeError
from byoc_core.file_replacement import replace_file

__all__ = ["load_arrays", "save_arrays"]

NDArray = npt.NDArray[Any]

_SUFFIX = ".npy"
_ENCRYPTED = 1
_COMPRESSION_RATIOS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
"""The largest quotient of size and compressed size for each readable method; deflate: see RFC 1951, section 3.2.5."""
_HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_ERRORS = (
    *(ValueError, TypeError, LookupError, ArithmeticError, SyntaxError, EOFError, MemoryError),
    *(RuntimeError, zipfile.BadZipFile, zlib.error, tokenize.TokenError, struct.error, IRTypeError),
)
"""The errors of zipfile and numpy for damaged files."""

_MARK = "|"
"""Separates an array's name from a dtype unknown to numpy, with the bytes stored as integers; names with a mark too."""


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, NDArray]) -> None:
    """Write arrays by name, in order; the file appears whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    with replace_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            dtype = dtype_name(array.dtype)
            key, stored = name, np.asarray(array)
            if dtype_info(dtype).from_ml_dtypes:
                key, stored = f"{name}{_MARK}{dtype}", stored.view(f"u{array.dtype.itemsize}")
            elif _MARK in name:
                key = f"{name}{_MARK}{dtype}"
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, stored, allow_pickle=False)


def load_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray]:
    """Load the arrays of a file written by :func:`save_arrays` or by numpy, by name, in order.

    Nothing of the file is trusted: no more memory is allocated than the data of the file fill.

    Raises:
        OSError: the file cannot be read.
        ArtifactError: the file is no file of arrays.
    """
    arrays: dict[str, NDArray] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                key = info.filename.removesuffix(_SUFFIX)
                name, mark, dtype = key.rpartition(_MARK)
                array = _read_member(archive, info)
                name, array = (name, _as_dtype(array, dtype)) if mark else (key, array)
                if name in arrays:
                    raise ValueError(f"two arrays have the name {name!r}")
                arrays[name] = array
    except (*_ERRORS, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # not a seek to a position of a damaged file
            raise
        raise ArtifactError(f"file `{os.fspath(path)}`", "is not an .npz file of arrays") from error
    return arrays


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray:
    """Return the array of a member.

    Raises:
        ValueError: the header is longer or shorter than the data, or describes no array without pickle.
    """
    ratio = _COMPRESSION_RATIOS.get(info.compress_type)
    if not info.filename.endswith(_SUFFIX) or ratio is None or info.flag_bits & _ENCRYPTED:
        raise ValueError("the member is no readable array")
    if info.file_size > ratio * info.compress_size:
        raise ValueError("the size of the member exceeds its data")
    with archive.open(info) as member:
        read_header = _HEADER_READERS.get(np.lib.format.read_magic(member))
        if read_header is None:
            raise ValueError("the header is of another version")
        shape, _, dtype = read_header(member)
        is_count = all(type(size) is int and size >= 0 for size in shape)
        if not is_count or math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise ValueError("the header does not fit the size of the member")
    with archive.open(info) as member:
        array: NDArray = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):  # at the end, zipfile compares the checksum
            raise ValueError("bytes follow the array")
    return array


def _as_dtype(array: NDArray, dtype: str) -> NDArray:
    """Return an array in its dtype, stated behind the mark."""
    target = to_numpy(dtype)
    if array.dtype != (f"u{target.itemsize}" if dtype_info(dtype).from_ml_dtypes else target):
        raise ValueError("the array is not stored as its dtype requires")
    return array.view(target)
