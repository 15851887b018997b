"""The files of byoc's C runtime: a shared library and a header for programs in C, C++ and Rust.

The runtime itself needs no Python. This package finds the files while a program is compiled and linked; the command
``python -m byoc_rt`` prints the flags for a compiler.
"""

from __future__ import annotations

from byoc_rt.files import include_directory, library_path
from byoc_rt.native_runtimes import NativeRuntimeError, find_native_runtimes

__all__ = ["NativeRuntimeError", "find_native_runtimes", "include_directory", "library_path"]
