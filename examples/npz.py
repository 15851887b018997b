"""Files of named arrays, as numpy reads them: zip files of npy files."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

__all__ = ["write_npz"]


def write_npz(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]], comment: bytes = b"") -> None:
    """Write arrays as an npz file; unlike ``numpy.savez``, with any names.

    The same arrays have the same bytes.

    Args:
        file: the file, open for writing.
        arrays: the arrays by name.
        comment: the comment of the zip file, at most 65,535 bytes; numpy ignores the comment.
    """
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = comment
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
