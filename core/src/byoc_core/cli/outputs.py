"""A function's outputs, summarised in a table or saved."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from byoc_core.dtypes import dtype_info, dtype_name
from byoc_core.file_replacement import replace_file

if TYPE_CHECKING:
    from rich.table import Table

    from byoc_core.runtime.module import NDArray

__all__ = ["new_summary", "save_outputs"]


def new_summary(outputs: Mapping[str, NDArray]) -> Table:
    """Return a table of names, shapes, dtypes and the smallest, mean and largest elements."""
    from byoc_core.cli.console import new_table

    columns = ("name", "shape", "dtype", "min", "mean", "max")
    table = new_table("Outputs", *columns, right=("min", "mean", "max"))
    for name, array in outputs.items():
        values = array.astype(np.float64)
        numbers = (values.min(), values.mean(), values.max()) if array.size else ()
        shape = f"({', '.join(map(str, array.shape))})"
        table.add_row(name, shape, dtype_name(array.dtype), *(f"{number:.6g}" for number in numbers))
    return table


def save_outputs(path: Path, outputs: Mapping[str, NDArray]) -> None:
    """Write a ``.npz`` file, whole or not at all.

    Types unknown to numpy (bfloat16 and the like) are written as float32.

    Raises:
        OSError: the file cannot be written.
    """
    plain = {
        name: array.astype(np.float32) if dtype_info(dtype_name(array.dtype)).from_ml_dtypes else array
        for name, array in outputs.items()
    }
    with replace_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        # Like `np.savez`, which cannot store an array named `file`.
        for name, array in plain.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
