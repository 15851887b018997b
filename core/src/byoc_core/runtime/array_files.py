"""Arrays in ``.npz`` files without pickle, including dtypes unknown to numpy; equal arrays give equal bytes."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dtypes import dtype_info, dtype_name, to_numpy
from byoc_core.errors import ArtifactError, IRTypeError
from byoc_core.file_replacement import replace_file

__all__ = ["load_arrays", "save_arrays"]

NDArray = npt.NDArray[Any]

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
    """Load the arrays of a file written by :func:`save_arrays`, by name, in order.

    Raises:
        OSError: the file cannot be read.
        ArtifactError: the file is no file of arrays.
    """
    arrays: dict[str, NDArray] = {}
    try:
        with np.load(path, allow_pickle=False) as stored:
            for key in stored.files:
                name, mark, dtype = key.rpartition(_MARK)
                array = stored[key]
                if not isinstance(array, np.ndarray):  # a member without the header of an array
                    raise TypeError(key)
                arrays[name if mark else key] = array.view(to_numpy(dtype)) if mark else array
    except (ValueError, EOFError, zipfile.BadZipFile, AttributeError, TypeError, IRTypeError) as error:
        raise ArtifactError(f"file `{os.fspath(path)}`", "is not an .npz file of arrays") from error
    return arrays
