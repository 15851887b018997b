"""Building a shared library from C files: a process for each unit, then the linker, with cached products."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from byoc_core.errors import ToolchainError
from byoc_core.native.build_cache import BuildCache
from byoc_core.native.compiler_process import REMEDY, run_compiler, write_files
from byoc_core.native.linkage import SharedLibrary
from byoc_core.native.processors import count_cpus

__all__ = ["LibraryBuild"]

_LIBRARY = "module.so"
_INCLUDE_OF_A_MACRO = re.compile(r'^[ \t]*#[ \t]*include[ \t]+[^"<\s]', re.MULTILINE)


@dataclass(frozen=True)
class LibraryBuild:
    """The inputs and commands of a build; equal builds give equal bytes.

    Attributes:
        identity: further dependencies of the products: the compiler, the target machine.
        compile_command: a compiler with all flags, without files.
        link_command: a compiler with all flags for linking, without files.
        libraries: flags behind the files of the linker.
        linked: digests of files among these libraries.
        shared: shared libraries among these libraries, placed in the linker's folder under the names given here.
        units: C texts by file name, in link order.
        headers: texts included by the units, by file name.
        binary: files included by the units with ``.incbin``.
        timeout_s: timeout of a compiler run in seconds.
    """

    identity: Sequence[object]
    compile_command: tuple[str, ...]
    link_command: tuple[str, ...]
    libraries: tuple[str, ...]
    linked: tuple[str, ...]
    shared: Sequence[SharedLibrary]
    units: Mapping[str, str]
    headers: Mapping[str, str]
    binary: Mapping[str, bytes]
    timeout_s: float

    def run(self, store: BuildCache) -> bytes:
        """Return the library from the cache, or build the library from cached and newly compiled units.

        Raises:
            ToolchainError: the compiler failed or ran too long.

        Cost: reading a file, or compiler runs, in parallel up to the number of processors.
        """
        object_keys = {name: self._object_key(name) for name in self.units}
        digests = self._digests(self.binary)
        commands = [self.compile_command, self.link_command, self.libraries, *self.linked]
        key = self._key("library", [commands, dict(self.units), dict(self.headers), digests])
        product = store.get(key)
        if product is None:
            product = self._build(store, object_keys)
            # A product with much data would evict all other entries from the cache.
            if not self.binary:
                store.put(key, product)
        return product

    def _build(self, store: BuildCache, object_keys: Mapping[str, bytes]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="byoc-build-", ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary)
            write_files(folder, {**self.headers, **self.units})
            for file, data in self.binary.items():
                (folder / file).write_bytes(data)
            with ThreadPoolExecutor(max_workers=min(len(self.units), count_cpus())) as pool:
                futures = [pool.submit(self._make_object, store, folder, *item) for item in object_keys.items()]
                try:
                    for future in futures:
                        future.result()
                finally:
                    pool.shutdown(cancel_futures=True)
            for name, path in self.shared:
                (folder / name).symlink_to(path)
            command = [*self.link_command, "-o", _LIBRARY, *map(_object_file, self.units), *self.libraries]
            run_compiler(command, self.timeout_s, folder=folder, files=self._texts())
            return _read_product(folder / _LIBRARY, "library", command)

    def _make_object(self, store: BuildCache, folder: Path, unit: str, key: bytes) -> None:
        path = folder / _object_file(unit)
        cached = store.get(key)
        if cached is not None:
            path.write_bytes(cached)
            return
        command = [*self.compile_command, "-c", "-o", path.name, unit]
        run_compiler(command, self.timeout_s, folder=folder, files=self._texts())
        product = _read_product(path, "object file", command)
        if not self._data_of(unit):
            store.put(key, product)

    def _texts(self) -> dict[str, str]:
        return {**self.headers, **self.units}

    def _object_key(self, unit: str) -> bytes:
        digests = self._digests(self._data_of(unit))
        return self._key("object", [self.compile_command, unit, self.units[unit], self._included(unit), digests])

    def _included(self, unit: str) -> dict[str, str]:
        """Return the files named by a unit, and by these files in turn; all files if an include names a macro.

        An object of byoc's own C therefore serves all libraries, whatever the other units are.
        """
        files, found, texts = self._texts(), dict[str, str](), [self.units[unit]]
        while texts:
            text = texts.pop()
            if _INCLUDE_OF_A_MACRO.search(text):
                return files
            named = {name: files[name] for name in files.keys() - found.keys() if Path(name).name in text}
            found |= named
            texts += named.values()
        return found

    def _data_of(self, unit: str) -> list[str]:
        return [name for name in self.binary if f'"{name}"' in self.units[unit]]

    def _digests(self, names: Iterable[str]) -> dict[str, str]:
        return {name: hashlib.sha256(self.binary[name]).hexdigest() for name in names}

    def _key(self, kind: str, parts: Sequence[object]) -> bytes:
        return json.dumps([kind, self.identity, parts], sort_keys=True).encode()


def _object_file(unit: str) -> str:
    return f"{unit[:-2]}.o"


def _read_product(path: Path, kind: str, command: Sequence[str]) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ToolchainError(
            "C compiler", f"did not write the {kind}", hint=REMEDY, detail=f"command: {' '.join(command)}"
        ) from error
