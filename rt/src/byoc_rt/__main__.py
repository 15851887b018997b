"""The command ``python -m byoc_rt``: flags for compilers, paths of files."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

from byoc_rt.files import include_directory, library_path
from byoc_rt.native_runtimes import NativeRuntimeError, find_native_runtimes

__all__ = ["main"]

_EPILOG = """\
Compile and link a program in C, in C++ or in Rust:

    cc program.c $(python -m byoc_rt --cflags --libs) -o program
    c++ -std=c++17 program.cpp $(python -m byoc_rt --cflags --libs) -o program
    rustc program.rs -C link-args="$(python -m byoc_rt --libs)"

The program finds the library in the folder of this installation (an rpath). On another machine, copy the file printed
by --path beside the program, and link with -Wl,-rpath,'$ORIGIN'; the file needs the C library only.

Models with regions of other runtimes need the native halves of these runtimes. All installed halves, for a process:

    BYOC_RT_RUNTIMES="$(python -m byoc_rt --runtimes)" ./program model.byoc
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m byoc_rt",
        description="Print the flags and paths for programs using byoc's C runtime.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cflags", action="store_true", help="print the flags to compile with the header byoc_rt.h")
    parser.add_argument("--libs", action="store_true", help="print the flags to link with the library, rpath included")
    parser.add_argument("--path", action="store_true", help="print the path of the library, for dlopen")
    parser.add_argument(
        "--runtimes",
        action="store_true",
        help="print the native halves of installed runtimes, in the format of BYOC_RT_RUNTIMES; an empty line: none",
    )
    options = parser.parse_args(arguments)
    if not any(vars(options).values()):
        parser.print_help()
        return 0
    try:
        lines = _lines(options)
    except (FileNotFoundError, NativeRuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(*lines, sep="\n")
    return 0


def _lines(options: argparse.Namespace) -> list[str]:
    """Return the requested lines: the flags share a line, each path has a line."""
    flags = [f"-I{include_directory()}"] if options.cflags else []
    if options.libs:
        folder = library_path().parent
        flags += [f"-L{folder}", "-lbyoc_rt", f"-Wl,-rpath,{folder}"]
    lines = [shlex.join(flags)] if flags else []
    if options.path:
        lines.append(str(library_path()))
    if options.runtimes:
        lines.append(os.pathsep.join(map(str, find_native_runtimes().values())))
    return lines


if __name__ == "__main__":
    sys.exit(main())
