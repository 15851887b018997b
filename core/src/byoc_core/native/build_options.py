"""The options of compiling and linking C, and the resulting library.

Flags made from the options, and digests of files found by the options, are part of the keys of the build cache. A saved
module keeps ``opt_level``, ``march``, ``extra_flags``, ``target`` and ``libraries``; folders and objects belong to the
building machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from byoc_core.errors import OptionsError
from byoc_core.native.cpu import Target
from byoc_core.native.linkage import SharedLibrary, absolute_paths, check_library_name, names

__all__ = ["BuildOptions", "CompiledLibrary", "merge_linkage"]

_FORBIDDEN = ("-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-ffinite-math-only", "-o", "-c", "-S", "-E")
_TRIPLE = re.compile(r"[a-z0-9_]+(-[a-z0-9_.]+){1,3}")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Options for compiling C.

    Attributes:
        opt_level: 0 to 3.
        march: ``"native"`` (this machine's instruction sets, recorded and checked when loaded; for another target the
            family's baseline), ``"generic"`` (the processor family's baseline), or a name known to the compiler.
        extra_flags: further compiler flags, behind the flags always given.
        target: the target machine, as named by ``zig cc`` (``"aarch64-linux-gnu"``); empty for this machine.
        libraries: names of libraries called by the C, in linking order: a library stands before the libraries that it
            calls. ``"mylib"`` is ``libmylib.so`` or ``libmylib.a``.
        library_dirs: folders searched for the libraries, before the linker's own.
        include_dirs: folders of headers included by the C.
        extra_objects: object files and static libraries (``*.o``, ``*.a``) to become part of the product.
    """

    opt_level: int = 3
    march: str = "native"
    extra_flags: tuple[str, ...] = ()
    target: str = ""
    libraries: tuple[str, ...] = ()
    library_dirs: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    extra_objects: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "libraries", names(self.libraries))
        for name in ("library_dirs", "include_dirs", "extra_objects"):
            object.__setattr__(self, name, absolute_paths(getattr(self, name)))
        for library in self.libraries:
            check_library_name(library)
        if self.opt_level not in range(4):
            raise OptionsError("option `opt_level`", "value not permitted", got=self.opt_level, expected="0 to 3")
        for flag in self.extra_flags:
            if flag in _FORBIDDEN:
                raise OptionsError("option `extra_flags`", f"flag {flag} is not permitted")
            if flag[:2] in ("-I", "-L") and not os.path.isabs(flag[2:]):  # noqa: PTH117 - the flag may have no path
                option = "include_dirs" if flag.startswith("-I") else "library_dirs"
                problem = f"flag {flag} names a relative folder, but the compiler runs in another folder"
                raise OptionsError("option `extra_flags`", problem, hint=f"Give the folder as `{option}`.")
        if self.target and not _TRIPLE.fullmatch(self.target):
            raise OptionsError(
                "option `target`",
                "is not a target triple",
                got=repr(self.target),
                expected="a triple such as aarch64-linux-gnu",
            )


@dataclass(frozen=True, slots=True)
class CompiledLibrary:
    """A shared library's bytes and the machines able to run the library.

    Attributes:
        data: the bytes.
        target: the machines.
        shared: needed libraries, with their files at build time; artifacts hold none.
    """

    data: bytes = field(repr=False)
    target: Target
    shared: tuple[SharedLibrary, ...] = ()


def merge_linkage(options: Sequence[BuildOptions]) -> BuildOptions:
    """Return the first options with the libraries, folders and objects of all, for linking several sources."""
    first = options[0]
    orders = dict.fromkeys(item.libraries for item in options)  # a library may be needed behind several others
    return replace(
        first,
        libraries=tuple(name for order in orders for name in order),
        library_dirs=_distinct(item.library_dirs for item in options),
        include_dirs=_distinct(item.include_dirs for item in options),
        extra_objects=_distinct(item.extra_objects for item in options),
    )


def _distinct(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))
