"""Link inputs of generated C beside byoc's own files: libraries, objects and headers of a backend's author.

Static libraries and objects become part of the compiled library. A shared library stays a separate file: the compiled
library requests the file by name. No folder is recorded, only ``$ORIGIN``, the folder of the requesting file.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from byoc_core.errors import OptionsError, ToolchainError
from byoc_core.native.compiler_process import run_compiler, write_files
from byoc_core.native.linked_files import file_digest, library_name

__all__ = [
    "Linkage",
    "SharedLibrary",
    "absolute_paths",
    "check_library_name",
    "find_linkage",
    "header_digests",
    "names",
]

SharedLibrary = tuple[str, str]
"""The requested name of a shared library, and the file on this machine."""

_LIBRARY_NAME = re.compile(r"[A-Za-z0-9_+.-]+")
_OBJECT_SUFFIXES = (".o", ".a", ".obj", ".lib")
_SHARED_SUFFIX = {"Darwin": ".dylib"}


@dataclass(frozen=True, slots=True)
class Linkage:
    """The files found for the options of a build.

    Attributes:
        flags: for the linker, behind the object files. A shared library of ``library_dirs`` lies in the folder of the
            linker's run, under the library's own name: no linker can then record the original folder.
        digests: the SHA-256 of each linked file, in link order.
        shared: the shared libraries found in ``library_dirs``.
    """

    flags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    shared: tuple[SharedLibrary, ...] = ()


def check_library_name(name: str) -> None:
    """Check a library name: ``"mylib"`` for ``libmylib.so`` or ``libmylib.a``.

    Raises:
        OptionsError: the text is a path, a flag or a file name.
    """
    where = "option `libraries`"
    if "/" in name or os.sep in name:
        hint = "Give the folder as `library_dirs`, or a static library's path as `extra_objects`."
        raise OptionsError(where, "is a path", got=repr(name), expected="a name such as 'mylib'", hint=hint)
    if name.startswith("-l") or not _LIBRARY_NAME.fullmatch(name):
        raise OptionsError(where, "is not a library name", got=repr(name), expected="a name such as 'mylib'")
    if re.fullmatch(r"lib.*\.(so|a|dylib)(\.[0-9]+)*", name):
        inner = name.removeprefix("lib").split(".")[0]
        raise OptionsError(where, "is a file name", got=repr(name), expected=repr(inner))


def names(name_or_names: str | Iterable[str]) -> tuple[str, ...]:
    """Return a single name or several names as a tuple."""
    return (name_or_names,) if isinstance(name_or_names, str) else tuple(name_or_names)


def absolute_paths(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return paths as absolute texts, because each compiler run has a separate working folder."""
    path_list = (paths,) if isinstance(paths, str | os.PathLike) else paths
    return tuple(os.path.abspath(os.fspath(path)) for path in path_list)  # noqa: PTH100 - links stay as the user wrote them


def find_linkage(
    libraries: tuple[str, ...],
    library_dirs: tuple[str, ...],
    extra_objects: tuple[str, ...],
    system: str,
    find_default: Callable[[str], str | None],
) -> Linkage:
    """Return the linker's flags and the files on which the product depends.

    Objects come first, then libraries in the order given: a library stands behind its callers. The search for a name
    follows the rule of linkers: shared before static in each folder. A name found in no folder of ``library_dirs`` is
    left to the linker.

    Args:
        libraries: names.
        library_dirs: folders.
        extra_objects: files.
        system: the target operating system.
        find_default: returns the path of a file in the compiler's own folders.

    Raises:
        ToolchainError: an object is missing or is no object; a folder is missing.
    """
    flags: list[str] = []
    digests: list[str] = []
    shared: list[SharedLibrary] = []
    for path in extra_objects:
        if not path.endswith(_OBJECT_SUFFIXES):
            hint = "Name a shared library in `libraries`, and the folder in `library_dirs`."
            raise ToolchainError(
                f"extra object `{path}`",
                "is neither an object file nor a static library",
                expected="*.o or *.a",
                hint=hint,
            )
        digests.append(_digest(path, f"extra object `{path}`"))
        flags.append(path)
    for folder in library_dirs:
        if not Path(folder).is_dir():
            raise ToolchainError(f"library folder `{folder}`", "does not exist", hint="See `library_dirs`.")
        flags += [f"-L{folder}"] if system == "Windows" else []
    for name in libraries:
        found, is_static = _find(name, library_dirs, system, find_default)
        if found is not None:
            digests.append(_digest(found, f"library `{name}`"))
            if is_static:
                flags.append(found)
                continue
            if os.path.dirname(found) in library_dirs:  # noqa: PTH120 - as `absolute_paths`
                shared.append((library_name(found), found))
                flags.append(shared[-1][0])
                continue
        flags.append(f"-l{name}")
    return Linkage(tuple(flags), tuple(digests), tuple(shared))


def header_digests(
    command: Sequence[str], files: Mapping[str, str], units: Iterable[str], timeout_s: float
) -> tuple[str, ...]:
    """Return the digests of the headers included by units from outside their own folder.

    Args:
        command: the compiler with its flags.
        files: texts by name.
        units: names of the units to examine.
        timeout_s: timeout of a run in seconds.

    Raises:
        ToolchainError: the preprocessor failed, for example because a header is not found.

    Cost: a run of the preprocessor for each unit.
    """
    digests: list[str] = []
    with tempfile.TemporaryDirectory(prefix="byoc-headers-", ignore_cleanup_errors=True) as folder:
        write_files(Path(folder), files)
        for unit in units:
            rule = run_compiler([*command, "-MM", unit], timeout_s, folder=Path(folder), files=files).stdout
            joined = rule.replace("\\\n", " ").partition(":")[2].replace("\\ ", "\0")
            paths = [word.replace("\0", " ") for word in joined.split()]
            digests += [_digest(path, f"header `{path}`") for path in paths if os.path.isabs(path)]  # noqa: PTH117
    return tuple(digests)


def _find(
    name: str, folders: Iterable[str], system: str, find_default: Callable[[str], str | None]
) -> tuple[str | None, bool]:
    """Return the file of a library and whether the file is static; no file if only the linker knows."""
    if system == "Windows":
        return None, False
    files = ((f"lib{name}{_SHARED_SUFFIX.get(system, '.so')}", False), (f"lib{name}.a", True))
    for folder in folders:
        for file, is_static in files:
            path = os.path.join(folder, file)  # noqa: PTH118 - as `absolute_paths`
            if os.path.isfile(path):  # noqa: PTH113
                return path, is_static
    for file, is_static in files:
        found = find_default(file)
        if found is not None:
            return found, is_static
    return None, False


def _digest(path: str, where: str) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise ToolchainError(where, f"cannot be read: {error}") from error
