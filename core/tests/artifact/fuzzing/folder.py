"""The folder shared by the processes of a run: the corpus and the attacks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from core.tests.artifact.fuzzing.corpus import Seed, seeds
from core.tests.artifact.fuzzing.holes import holes

__all__ = ["Folder", "write_folder"]


@dataclass(frozen=True)
class Folder:
    """The contents of the files in a folder.

    Attributes:
        seeds: the artifacts.
        attacks: artifacts with an attack of :mod:`holes`, by the names of both.
    """

    seeds: tuple[Seed, ...]
    attacks: tuple[tuple[str, bytes], ...]

    @classmethod
    def read(cls, path: Path) -> Folder:
        """Return the data written by :func:`write_folder`."""
        found = [
            Seed(file.stem.rpartition(".")[0], file.read_bytes(), file.stem.endswith(".native"))
            for file in sorted(path.glob("*.seed"))
        ]
        return cls(tuple(found), tuple((file.stem, file.read_bytes()) for file in sorted(path.glob("*.attack"))))


def write_folder(path: Path) -> None:
    """Write the artifacts and attacks into a folder."""
    for seed in seeds():
        (path / f"{seed.name}.{'native' if seed.is_native else 'data'}.seed").write_bytes(seed.content)
        for name, content in holes(seed).items():
            (path / f"{seed.name}.{name}.attack").write_bytes(content)
