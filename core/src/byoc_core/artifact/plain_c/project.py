"""Files beside the model's sources: a program with the test vector, a Makefile, CMake, and a page of instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from byoc_core.artifact.plain_c.constants import ConstantFiles
from byoc_core.artifact.plain_c.layout import WorkspaceLayout
from byoc_core.artifact.plain_c.names import FunctionNames
from byoc_core.artifact.plain_c.test_vector import TestVector
from byoc_core.dims import evaluate
from byoc_core.native.c_text import C_TYPES, HALF_DTYPES
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import NDArray

__all__ = ["project_files"]

_FLAGS = "-std=c11 -O3 -ffp-contract=off -fno-math-errno"
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
add_test(NAME {name}_test COMMAND {name}_test)
"""


def project_files(
    name: str,
    sources: Sequence[str],
    modules: Sequence[CSourceModule],
    names: Mapping[str, FunctionNames],
    layouts: Mapping[str, WorkspaceLayout],
    vector: TestVector | None,
    constants: str,
) -> dict[str, bytes]:
    """Return the files by name.

    Args:
        name: the model's name.
        sources: the model's C files.
        modules: the sources of generated C, for their libraries and instruction sets.
        names: the C names of all functions, by name.
        layouts: the workspaces of all functions, by name.
        vector: the test vector, if there is one.
        constants: the form of the test vector's arrays, as of the constants.
    """
    files: dict[str, bytes] = {}
    test_sources = ["main.c"]
    if vector is not None:
        arrays = {f"{kind}{n}": a for kind in ("in", "out") for n, a in enumerate(_arrays(vector, kind))}
        test_files = ConstantFiles(f"{name}_test", arrays, constants)
        files |= test_files.files()
        files["main.c"] = _main(name, names[vector.function], layouts[vector.function], vector, test_files).encode()
        test_sources += [file for file in test_files.files() if file.endswith(".c")]
    else:
        files["main.c"] = _empty_main(name).encode()
    libraries = list(dict.fromkeys(library for module in modules for library in module.options.libraries))
    objects = list(dict.fromkeys(path for module in modules for path in module.options.extra_objects))
    files |= {Path(path).name: Path(path).read_bytes() for path in objects}
    arch = "".join(f" {flag}" for flag in _arch_flags(modules))
    folders = list(dict.fromkeys(path for module in modules for path in module.options.library_dirs))
    linked = [Path(path).name for path in objects] + [f"-L{path}" for path in folders] + [f"-l{n}" for n in libraries]
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
    """Return the flags for the instruction sets of the generated C."""
    marches = dict.fromkeys(m.options.march for m in modules if not m.options.target)
    return [f"-march={march}" for march in marches if march != "generic"][:1]


def _in_cmake(item: str) -> str:
    return f"${{CMAKE_CURRENT_SOURCE_DIR}}/{item}" if item.endswith((".o", ".a")) else item


def _main(
    name: str, names: FunctionNames, layout: WorkspaceLayout, vector: TestVector, test_files: ConstantFiles
) -> str:
    nbytes = max(evaluate(layout.nbytes, dict(vector.sizes)), 1)
    expressions = test_files.expressions()
    lines = [
        f"/* Runs {name} on a test vector; with an argument N, N times, for the time of a run. */",
        "#include <math.h>",
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "#include <time.h>",
        "",
        f'#include "{name}.h"',
        "",
        *test_files.declarations(),
        "",
        f"static _Alignas(64) unsigned char workspace[{nbytes}];",
        *(
            f"static _Alignas(64) {_type(array)} output_{number}[{max(array.size, 1)}];"
            for number, array in enumerate(vector.outputs)
        ),
        "",
        *_CHECKS,
        "",
        "int main(int argc, char **argv) {",
        f"  const struct {name}{names.suffix}_inputs inputs = {{",
        *(
            f"      .{member} = (const {_type(array)} *)(const void *)({expressions[f'in{number}']}),"
            for number, (member, array) in enumerate(zip(names.inputs, vector.inputs, strict=True))
        ),
        *(f"      .{member} = {vector.sizes[symbol]}," for symbol, member in names.sizes.items()),
        *(["      .unused = 0,"] if not names.inputs and not names.sizes else []),
        "  };",
        f"  const struct {name}{names.suffix}_outputs outputs = {{",
        *(f"      .{member} = output_{number}," for number, member in enumerate(names.outputs)),
        *(["      .unused = 0,"] if not names.outputs else []),
        "  };",
        f"  const int32_t status = {names.run}(&inputs, &outputs, workspace);",
        f'  if (status) return printf("{names.run}: status %d\\n", (int)status), 1;',
        "  int failures = 0;",
        *(
            f'  failures += check_{_kind(array)}("{member}", output_{number}, '
            f"(const void *)({expressions[f'out{number}']}), {array.size}, {_tolerance(array)});"
            for number, (member, array) in enumerate(zip(names.outputs, vector.outputs, strict=True))
        ),
        "  const long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 0;",
        "  if (rounds > 0) {",
        "    const clock_t start = clock();",
        f"    for (long i = 0; i < rounds; ++i) {names.run}(&inputs, &outputs, workspace);",
        '    printf("%.3f us per run\\n", 1e6 * (double)(clock() - start) / CLOCKS_PER_SEC / (double)rounds);',
        "  }",
        "  return failures ? 1 : 0;",
        "}",
    ]
    used = {_kind(array) for array in vector.outputs}
    text = "\n".join(lines) + "\n"
    for kind in ("float", "double", "bytes"):
        if kind not in used:
            start = text.index(f"static int check_{kind}(")
            text = text[:start] + text[text.index("}\n\n", start) + 3 :]
    return text


def _check(kind: str, read: str) -> Iterator[str]:
    """Yield a C function comparing outputs with expected values."""
    yield f"static int check_{kind}(const char *name, const void *got, const void *wanted, size_t count,"
    yield f"{' ' * len(f'static int check_{kind}(')}double share) {{"
    yield f"  const {read} *a = ({read} *)(uintptr_t)got, *b = (const {read} *)wanted;"
    yield "  double largest = 0, error = 0;"
    yield "  for (size_t i = 0; i < count; ++i) {"
    yield "    const double x = (double)a[i], y = (double)b[i];"
    yield "    if (isnan(x) && isnan(y)) continue;"
    yield "    if (isfinite(y) && fabs(y) > largest) largest = fabs(y);"
    yield "    if (!(fabs(x - y) <= error)) error = x == y ? error : fabs(x - y);"
    yield "  }"
    yield "  const int is_right = error <= share * largest;"
    yield '  printf("%s: %zu elements, largest error %.3g of %.3g: %s\\n", name, count, error, largest,'
    yield '         is_right ? "right" : "WRONG");'
    yield "  return !is_right;"
    yield "}"
    yield ""


_CHECKS = (
    *_check("float", "float"),
    *_check("double", "double"),
    "static int check_bytes(const char *name, const void *got, const void *wanted, size_t count, double size) {",
    "  const unsigned char *a = got, *b = wanted;",
    "  size_t differences = 0;",
    "  for (size_t i = 0; i < count * (size_t)size; ++i) differences += a[i] != b[i];",
    '  printf("%s: %zu elements, %zu bytes differ: %s\\n", name, count, differences, differences ? "WRONG" : "right");',
    "  return differences != 0;",
    "}",
    "",
)


def _kind(array: NDArray) -> str:
    return {"float32": "float", "float64": "double"}.get(array.dtype.name, "bytes")


def _tolerance(array: NDArray) -> str:
    """Return the share of the largest value allowed as error, or the bytes of an element compared bit by bit."""
    return {"float32": "1e-4", "float64": "1e-10"}.get(array.dtype.name, str(array.dtype.itemsize))


def _type(array: NDArray) -> str:
    return "uint16_t" if array.dtype.name in HALF_DTYPES else C_TYPES[array.dtype.name]


def _empty_main(name: str) -> str:
    return (
        "/* The exporting machine could not run the model: there is no test vector. */\n"
        f'#include <stdio.h>\n\n#include "{name}.h"\n\n'
        f'int main(void) {{\n  printf("{name}: no test vector\\n");\n  return 0;\n}}\n'
    )
