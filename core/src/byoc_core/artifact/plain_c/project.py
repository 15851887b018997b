"""Files beside the model's sources: a program with the test vector, a Makefile, and a CMake file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from byoc_core.artifact.plain_c.constants import ConstantFiles
from byoc_core.artifact.plain_c.main_program import main_program, program_without_vector
from byoc_core.artifact.plain_c.plain_model import PlainModel
from byoc_core.artifact.plain_c.test_vector import TestVector
from byoc_core.errors import ToolchainError
from byoc_core.native.toolchain import find_toolchain
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import NDArray

__all__ = ["project_files"]

_FLAGS = "-std=c11 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math"
"""Flags for results as in the virtual machine: no contraction of products and sums but where the C asks for it."""

_MAKEFILE = """\
# Builds lib{name}.a, and the program {name}_test. `make check` runs the test vector.
CC ?= cc
AR ?= ar
CFLAGS ?= {flags}{arch}
LDLIBS += {libraries}

OBJECTS = {objects}
TESTS = {tests}

all: lib{name}.a

lib{name}.a: $(OBJECTS)
\t$(AR) rcs $@ $(OBJECTS)

{name}_test: $(TESTS) lib{name}.a
\t$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(TESTS) lib{name}.a $(LDLIBS)

check: {name}_test
\t./{name}_test

%.o: %.c
\t$(CC) $(CFLAGS) $(CPPFLAGS) -I. -c -o $@ $<

clean:
\trm -f lib{name}.a {name}_test $(OBJECTS) $(TESTS)

.PHONY: all check clean
"""

_CMAKE = """\
cmake_minimum_required(VERSION 3.13)
project({name} C)

add_library({name} STATIC {sources})
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_compile_options({name} PRIVATE {flags}{arch})
target_link_libraries({name} PUBLIC {libraries})

add_executable({name}_test {test_sources})
target_link_libraries({name}_test PRIVATE {name})
enable_testing()
add_test(NAME {name}_test COMMAND {name}_test WORKING_DIRECTORY ${{CMAKE_CURRENT_SOURCE_DIR}})
"""


def project_files(model: PlainModel, sources: Sequence[str], vector: TestVector | None) -> dict[str, bytes]:
    """Return the files by name.

    Args:
        model: the model.
        sources: the model's C files.
        vector: the test vector, if there is one.
    """
    name = model.name
    files: dict[str, bytes] = {}
    test_sources = ["main.c"]
    if vector is not None:
        arrays = {f"{kind}{n}": a for kind in ("in", "out") for n, a in enumerate(_arrays(vector, kind))}
        test_files = ConstantFiles(f"{name}_test", arrays, "array" if model.is_portable else "auto")
        files |= test_files.files()
        files["main.c"] = main_program(model, vector, test_files).encode()
        test_sources += [file for file in test_files.files() if file.endswith(".c")]
    else:
        files["main.c"] = program_without_vector(name).encode()
    options = [module.options for module in model.modules]
    libraries = list(dict.fromkeys(library for item in options for library in item.libraries))
    objects = list(dict.fromkeys(path for item in options for path in item.extra_objects))
    folders = list(dict.fromkeys(path for item in options for path in item.library_dirs))
    files |= {Path(path).name: Path(path).read_bytes() for path in objects}
    arch = "".join(f" {flag}" for flag in _arch_flags(model.modules))
    # The test program runs on the exporting machine, with shared libraries of these folders.
    search = [flag for path in folders for flag in (f"-L{path}", f"-Wl,-rpath,{path}")]
    linked = [*(Path(path).name for path in objects), *search, *(f"-l{name}" for name in libraries)]
    files["Makefile"] = _MAKEFILE.format(
        name=name,
        flags=_FLAGS,
        arch=arch,
        libraries=" ".join([*linked, "-lm"]),
        objects=" ".join(f"{file[:-2]}.o" for file in sources),
        tests=" ".join(f"{file[:-2]}.o" for file in test_sources),
    ).encode()
    files["CMakeLists.txt"] = _CMAKE.format(
        name=name,
        sources=" ".join(sources),
        test_sources=" ".join(test_sources),
        flags=_FLAGS,
        arch=arch,
        libraries=" ".join([*(_in_cmake(item) for item in linked), "m"]),
    ).encode()
    return files


def _arrays(vector: TestVector, kind: str) -> Sequence[NDArray]:
    return vector.inputs if kind == "in" else vector.outputs


def _arch_flags(modules: Sequence[CSourceModule]) -> list[str]:
    """Return the flags for the instruction sets of the generated C; none if the modules differ or name a target."""
    marches = dict.fromkeys(module.options.march for module in modules)
    if len(marches) != 1 or "generic" in marches or any(module.options.target for module in modules):
        return []
    (march,) = marches
    try:
        flags = find_toolchain().arch_flags(march)
    except ToolchainError:
        return [f"-march={march}"]
    # Flags of zig are unknown to other compilers.
    return [f"-march={march}"] if any(flag.startswith("-mcpu") for flag in flags) else list(flags)


def _in_cmake(item: str) -> str:
    return f"${{CMAKE_CURRENT_SOURCE_DIR}}/{item}" if item.endswith((".o", ".a")) else item
