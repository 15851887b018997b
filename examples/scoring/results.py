"""The result file of a shard: complete or absent, and with a record of its origin."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from byoc_core.file_replacement import replace_file

from examples.npz import write_npz
from examples.scoring.shards import Arrays

__all__ = ["Record", "read_record", "read_results", "remove_unfinished", "result_path", "write_results"]


@dataclass(frozen=True)
class Record:
    """The origin of a result file, stored as the comment of its zip file.

    Attributes:
        shard: the name of the shard.
        num_rows: the rows.
        model: the SHA-256 of the artifact.
        inputs: the digest of the inputs.
        results: the digest of the results.
    """

    shard: str
    num_rows: int
    model: str
    inputs: str
    results: str


def result_path(folder: Path, shard: str) -> Path:
    """Return the path of the result file of a shard."""
    return folder / f"{shard}.npz"


def write_results(folder: Path, record: Record, results: Arrays) -> None:
    """Write a result file; the file appears with its record, complete, or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    with replace_file(result_path(folder, record.shard)) as file:
        write_npz(file, results, json.dumps(asdict(record)).encode())


def read_record(folder: Path, shard: str) -> Record | None:
    """Return the record of a result file; ``None`` without a result file of this program."""
    try:
        with zipfile.ZipFile(result_path(folder, shard)) as archive:
            return Record(**json.loads(archive.comment))
    except (OSError, zipfile.BadZipFile, ValueError, TypeError):
        return None


def read_results(folder: Path, shard: str) -> Arrays:
    """Return the results of a shard by the names of the outputs.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged.
    """
    try:
        with np.load(result_path(folder, shard), allow_pickle=False) as loaded:
            return dict(loaded)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{result_path(folder, shard)}: {error}") from error


def remove_unfinished(folder: Path) -> None:
    """Remove files of processes killed while writing."""
    for path in folder.glob(".byoc-*"):
        path.unlink(missing_ok=True)
