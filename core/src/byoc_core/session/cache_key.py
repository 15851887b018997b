"""The key of a compiled model in the cache: a digest of everything that compiling reads.

The model's bytes and the bytes of its external files, the choices for the compilation, the code of the core and of all
plugins, the processor, the user's measurements and the environment variables of byoc. Nothing is compiled, and nothing
of the compile side is imported.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from byoc_core.native.build_cache import cache_directory
from byoc_core.native.cpu import machine_features
from byoc_core.plugin.installation import installation
from byoc_core.runtime.threads import num_threads

__all__ = ["NoKeyError", "file_digest", "key_of_files", "key_of_model"]

_VARIABLES = ("BYOC_", "CC", "CFLAGS", "OMP_NUM_THREADS")
_NOT_OF_COMPILATION = ("BYOC_CACHE_DIR", "BYOC_SESSION_CACHE_NBYTES")
_CORE = Path(__file__).parents[1]


class NoKeyError(Exception):
    """A choice has no plain form, such as an object of the caller: the model cannot be cached. The text says which."""


def key_of_model(model: Path, choices: Mapping[str, Any], threads: int | None) -> str:
    """Return a digest of a model file, without its external files, and of everything else that compiling reads.

    Args:
        model: the file.
        choices: the choices for the compilation, by name.
        threads: the number of threads of a call; ``None`` for the number of the process.

    Raises:
        NoKeyError: a choice has no plain form.
        OSError: a file cannot be read.
    """
    facts = {
        "model": file_digest(model),
        "choices": {name: _plain(value, name) for name, value in choices.items()},
        "threads": num_threads() if threads is None else threads,
        "code": _code_digest(_code_folders()),
        "python": [sys.implementation.cache_tag, sys.platform],
        "machine": [platform.system(), platform.machine(), _processor(), sorted(machine_features() or ())],
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(_VARIABLES) and name not in _NOT_OF_COMPILATION
        },
        "measurements": _measurements_digest(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def key_of_files(key: str, folder: Path, names: Iterable[str]) -> str:
    """Return the key of a model together with its external files.

    Args:
        key: the key of the model file.
        folder: the folder of the model.
        names: the external files, relative to the folder.

    Raises:
        OSError: a file cannot be read.
    """
    digests = [(name, file_digest(folder / name)) for name in sorted(names)]
    return hashlib.sha256(json.dumps([key, digests]).encode()).hexdigest() if digests else key


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as hexadecimal text. Cost: one pass over the file.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any, where: str) -> Any:
    """Return a choice as plain JSON values. Objects of byoc are records of their fields; a path is a file's digest."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        return [type(value).__name__, value.name]
    if isinstance(value, os.PathLike):
        return ["file", file_digest(Path(value))]
    if isinstance(value, Mapping):
        return {str(key): _plain(item, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, where) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_plain(item, where), sort_keys=True) for item in value)
    kind = type(value)
    if kind.__module__.partition(".")[0] == _CORE.name:
        names: Iterable[str] | None = getattr(kind, "model_fields", None)  # of a pydantic model
        if dataclasses.is_dataclass(kind):
            names = [field.name for field in dataclasses.fields(kind)]
        if names is not None:
            return [kind.__name__, {name: _plain(getattr(value, name), where) for name in names}]
    raise NoKeyError(f"`{where}` holds an object of type {kind.__name__}")


def _code_folders() -> tuple[Path, ...]:
    """Return the folders of byoc and its plugins."""
    folders = {_CORE}
    for declaration in installation().snapshot.metadata.declarations:
        folders.update(_folder_of(value) for _, _, value in declaration.entries)
    return tuple(sorted(folders))


@cache
def _code_digest(folders: tuple[Path, ...]) -> str:
    """Return a digest of files: names, sizes and times of change.

    The digest is of the first request of the process: modules in memory do not follow later changes of their files.
    """
    digest = hashlib.sha256()
    for folder in folders:
        for path, nbytes, changed in sorted(_files(folder)):
            digest.update(f"{path}\0{nbytes}\0{changed}\n".encode())
    return digest.hexdigest()


def _folder_of(entry: str) -> Path:
    """Return the folder of the package behind an entry point, or its only file; nothing is imported."""
    name = entry.partition(":")[0].partition(".")[0]
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.origin:
        return Path(name)
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    if folder.is_file():
        status = folder.stat()
        yield str(folder), status.st_size, status.st_mtime_ns
        return
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _files(Path(entry.path))
            else:
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return platform.processor()
    names = [line for line in path.read_text("utf-8", "replace").splitlines() if line.startswith("model name")]
    return names[0] if names else ""


def _measurements_digest() -> str:
    """Return the digest of the user's database of measured ops: placements by cost read it."""
    location = os.environ.get("BYOC_MEASUREMENTS", "")
    path = Path(location) if location else cache_directory() / "measurements.sqlite"
    return file_digest(path) if location != "0" and path.is_file() else ""
