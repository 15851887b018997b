"""The shards of a data set: files of rows, or rows drawn at random."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import byoc_core
import numpy as np
import numpy.typing as npt

__all__ = ["DrawnShard", "FileShard", "Shard", "digest_of", "find_shards"]

Arrays = Mapping[str, npt.NDArray[Any]]


class Shard(Protocol):
    """A part of a data set, scored as a task."""

    @property
    def name(self) -> str:
        """The name, unique in the data set."""

    def load(self, session: byoc_core.Session) -> Arrays:
        """Return the inputs of the model, by name.

        Raises:
            ValueError: the shard cannot be read for this model.
            OSError: the file cannot be read.
        """


@dataclass(frozen=True)
class FileShard:
    """A file of rows: ``.npy`` for a model of one input, ``.npz`` with an array for each input."""

    name: str
    path: Path

    def load(self, session: byoc_core.Session) -> Arrays:
        """Return the arrays of the file."""
        if self.path.suffix == ".npz":
            with np.load(self.path, allow_pickle=False) as loaded:
                return dict(loaded)
        names = [value.name for value in session.inputs]
        if len(names) != 1:
            raise ValueError(f"{self.path}: the model has {len(names)} inputs; store {', '.join(names)} as .npz")
        return {names[0]: np.load(self.path, allow_pickle=False)}


@dataclass(frozen=True)
class DrawnShard:
    """Random rows, the same for the same seed."""

    name: str
    symbol: str
    num_rows: int
    seed: int

    def load(self, session: byoc_core.Session) -> Arrays:
        """Draw an array for each input; sizes other than the rows are 1."""
        generator = np.random.default_rng(self.seed)
        sizes = {symbol: 1 for value in session.inputs for symbol in value.symbols} | {self.symbol: self.num_rows}
        return {value.name: value.draw(generator, sizes) for value in session.inputs}


def find_shards(folder: Path) -> Sequence[FileShard]:
    """Return the ``.npy`` and ``.npz`` files of a folder, by name.

    Raises:
        ValueError: there is no such file, or two have the same name.
        OSError: the folder cannot be read.
    """
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".npy", ".npz") and path.name[0] != ".")
    if not paths:
        raise ValueError(f"{folder}: holds no .npy and no .npz file")
    shards = {path.stem: FileShard(path.stem, path) for path in paths}
    if len(shards) < len(paths):
        raise ValueError(f"{folder}: a name stands for both a .npy and a .npz file")
    return list(shards.values())


def digest_of(arrays: Arrays) -> str:
    """Return the SHA-256 of named arrays: names, dtypes, shapes and elements."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
