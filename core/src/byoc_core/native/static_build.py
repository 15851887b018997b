"""Compilation of C files into objects, an archive of objects (a static library), or a shared library."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from byoc_core.errors import ToolchainError
from byoc_core.native.compiler_process import run_compiler
from byoc_core.native.processors import count_cpus
from byoc_core.native.toolchain import BuildOptions, Toolchain, find_toolchain

__all__ = ["build_archive", "build_shared"]


def build_archive(files: Mapping[str, bytes], options: BuildOptions) -> bytes:
    """Return a static library of all C files.

    Args:
        files: C files, headers and binary files by name.
        options: the build options; objects among them become part of the archive.

    Raises:
        ToolchainError: there is no C compiler or no archiver, or either failed.
    """
    with TemporaryDirectory(prefix="byoc-archive-", ignore_cleanup_errors=True) as folder:
        toolchain = find_toolchain(options.target)
        objects = _compile(toolchain, files, options, Path(folder), ())
        objects += [str(path) for path in options.extra_objects if path.endswith((".o", ".obj"))]
        command = [*_archiver(toolchain), "rcsD", "library.a", *objects]
        run_compiler(command, toolchain.timeout_s, folder=Path(folder))
        return (Path(folder) / "library.a").read_bytes()


def build_shared(files: Mapping[str, bytes], options: BuildOptions) -> bytes:
    """Return a shared library of all C files, with the functions visible by default in the C.

    Args:
        files: C files, headers and binary files by name.
        options: the build options.

    Raises:
        ToolchainError: there is no C compiler, or the compiler failed.
    """
    with TemporaryDirectory(prefix="byoc-shared-", ignore_cleanup_errors=True) as folder:
        toolchain = find_toolchain(options.target)
        objects = _compile(toolchain, files, options, Path(folder), ("-fvisibility=default",))
        link = [*toolchain.command, *toolchain.link_flags(options), "-o", "library.so", *objects]
        run_compiler([*link, *toolchain.libraries(options, [])], toolchain.timeout_s, folder=Path(folder))
        return (Path(folder) / "library.so").read_bytes()


def _compile(
    toolchain: Toolchain, files: Mapping[str, bytes], options: BuildOptions, folder: Path, flags: Sequence[str]
) -> list[str]:
    """Compile each C file in the folder; return the names of the objects."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    texts = {name: data.decode() for name, data in files.items() if name.endswith((".c", ".h"))}
    units = [name for name in files if name.endswith(".c")]
    command = [*toolchain.command, *toolchain.flags(options), *flags, "-I."]

    def compile_unit(unit: str) -> None:
        run_compiler([*command, "-c", "-o", f"{unit[:-2]}.o", unit], toolchain.timeout_s, folder=folder, files=texts)

    with ThreadPoolExecutor(max_workers=min(len(units), count_cpus())) as pool:
        list(pool.map(compile_unit, units))
    return [f"{unit[:-2]}.o" for unit in units]


def _archiver(toolchain: Toolchain) -> list[str]:
    """Return the command of the archiver belonging to a compiler.

    Raises:
        ToolchainError: there is none.
    """
    if toolchain.is_zig:
        return (
            [sys.executable, "-m", "ziglang", "ar"] if "ziglang" in toolchain.command else [toolchain.command[0], "ar"]
        )
    found = shutil.which("ar") or shutil.which("llvm-ar")
    if found is None:
        raise ToolchainError(
            "archiver", "`ar` is not on PATH", hint="apt-get install binutils, or pip install ziglang."
        )
    return [found]
