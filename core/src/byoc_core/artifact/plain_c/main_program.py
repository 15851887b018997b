"""The test program of an exported model: a run on the test vector, and the time of a run."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_core.artifact.plain_c.constants import ConstantFiles
from byoc_core.artifact.plain_c.names import unique_names
from byoc_core.artifact.plain_c.plain_model import PlainModel
from byoc_core.artifact.plain_c.state_text import public_type
from byoc_core.artifact.plain_c.test_vector import TestVector
from byoc_core.dims import evaluate
from byoc_core.native.c_text import HALF_DTYPES, c_storage_type
from byoc_core.runtime.module import NDArray

__all__ = ["main_program", "program_without_vector"]

_HEAD = """\
/* Runs {name} on a test vector; with an argument N, N further times, for the time of a run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "{name}.h"
"""
_MAIN = """\
int main(int argc, char **argv) {{{load}
  const int32_t status = run();
  if (status) return printf("{run}: status %d\\n", (int)status), 1;
  int failures = 0;
{checks}
  const long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
  if (rounds > 0) {{
    const clock_t start = clock();
    for (long i = 0; i < rounds; ++i) run();
    printf("%.3f us per run\\n", 1e6 * (double)(clock() - start) / CLOCKS_PER_SEC / (double)rounds);
  }}
  return failures ? 1 : 0;
}}
"""

_MAPPED = """\

#ifndef {upper}_CONSTANTS_PATH
#define {upper}_CONSTANTS_PATH "{file}"
#endif
static const void *constants;

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Map the constants: pages are read on first use, and shared by processes. Return the bytes of the file, or -1. */
static int64_t load_constants(const char *path) {{
  struct stat facts;
  const int file = open(path, O_RDONLY);
  if (file < 0) return -1;
  void *data = fstat(file, &facts) ? MAP_FAILED : mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (data == MAP_FAILED) return -1;
  constants = data;
  return facts.st_size;
}}
#else
/* Without mmap the constants are copied into an array; fopen of many C libraries takes memory from the heap. */
static _Alignas({upper}_CONSTANTS_ALIGNMENT) unsigned char copied_constants[{upper}_CONSTANTS_SIZE];

static int64_t load_constants(const char *path) {{
  FILE *file = fopen(path, "rb");
  if (!file) return -1;
  size_t nbytes = fread(copied_constants, 1, sizeof copied_constants, file);
  nbytes += fgetc(file) != EOF; /* a larger file */
  fclose(file);
  constants = copied_constants;
  return (int64_t)nbytes;
}}
#endif
"""
_LOAD = """
  const char *path = argc > 2 ? argv[2] : {upper}_CONSTANTS_PATH;
  const int64_t nbytes = load_constants(path);
  if ({name}_check_constants(constants, nbytes)) return printf("%s: not the constants\\n", path), 1;"""
_INIT = """
  if ({init}(&state{constants})) return printf("{init}: failed\\n"), 1;"""
_VARIABLES = (
    "run",
    "state",
    "main",
    "pools",
    "inputs",
    "outputs",
    "argc",
    "argv",
    "status",
    "failures",
    "rounds",
    "start",
    "i",
    "path",
    "load_constants",
    "copied_constants",
)


def main_program(model: PlainModel, vector: TestVector, test_files: ConstantFiles) -> str:
    """Return the program comparing a run with the expected outputs.

    Args:
        model: the model.
        vector: inputs and expected outputs.
        test_files: the arrays of the vector: ``in0``, ``in1``, ..., ``out0``, ...
    """
    names, layout = model.names[vector.function], model.layouts[vector.function]
    expressions = test_files.expressions()
    is_placed = bool(layout.inputs or layout.outputs)
    sizes = dict(vector.sizes)
    head = _HEAD.format(name=model.name)
    fields = {"name": model.name, "upper": model.name.upper(), "file": model.constants.file_name}
    is_file = model.constants.is_file
    if is_file:
        # mmap is no part of C11.
        head = head.replace("#include <math.h>", "#define _POSIX_C_SOURCE 200809L\n#include <math.h>")
        head += _MAPPED.format(**fields)
    lines = [head, *test_files.declarations(), ""]
    variables = _pool_variables(model)
    for variable, pool, nbytes in zip(variables, model.pools, layout.nbytes, strict=True):
        size = max(evaluate(nbytes, sizes), 1)
        lines.append(f"static _Alignas({pool.alignment}) unsigned char {variable}[{size}];")
    if len(model.pools) > 1:
        values = ", ".join(variables)
        lines.append(f"static const struct {model.name}_pools pools = {{{values}}};")
    if not is_placed:
        lines += [
            f"static _Alignas(64) {_type(array)} output_{number}[{max(array.size, 1)}];"
            for number, array in enumerate(vector.outputs)
        ]
    kinds = dict.fromkeys(map(_kind, vector.outputs))
    lines += ["", *(line for kind in kinds for line in _CHECKS[kind])]
    if names.states:
        lines += _state(model, vector)
    lines += [*_run(model, vector, expressions, is_placed=is_placed), ""]
    memory = variables[0] if len(model.pools) == 1 else "&pools"
    got = [
        f"{names.accessor('output', n)}({memory})" if is_placed else f"output_{k}" for k, n in enumerate(names.outputs)
    ]
    checks = [
        f'  failures += check_{_kind(array)}("{member}", {got[number]}, '
        f"(const void *)({expressions[f'out{number}']}), {array.size}, {_tolerance(array)});"
        for number, (member, array) in enumerate(zip(names.outputs, vector.outputs, strict=True))
    ]
    return (
        "\n".join(lines)
        + "\n"
        + _MAIN.format(
            run=names.run,
            checks="\n".join(checks),
            load=(_LOAD.format(**fields) if is_file else "")
            + (_INIT.format(init=names.init_state, constants=", constants" if is_file else "") if names.states else ""),
        )
    )


def _state(model: PlainModel, vector: TestVector) -> Iterator[str]:
    """Yield the structure of states, with buffers large enough for a run from the first values."""
    names, values = model.names[vector.function], []
    buffers = model.state_buffers[vector.function]
    for number, (member, capacity, dtype, count) in enumerate(buffers):
        size = evaluate(count, vector.sizes)
        yield f"static _Alignas(64) {public_type(dtype)} state_buffer_{number}[{max(size, 1)}];"
        values += [f".{member} = state_buffer_{number}", f".{capacity} = {size}"]
    initial = f" = {{{', '.join(values)}}}" if values else ""
    yield f"static struct {names.state_structure} state{initial};"


def _pool_variables(model: PlainModel) -> tuple[str, ...]:
    """Return the names of the arrays of the pools."""
    checks = (f"check_{kind}" for kind in _CHECKS)
    outputs = [f"output_{number}" for number in range(max(len(names.outputs) for names in model.names.values()))]
    outputs += [f"state_buffer_{number}" for number in range(max(map(len, model.state_buffers.values())))]
    return unique_names((pool.name for pool in model.pools), (*_VARIABLES, *checks, *outputs), lambda _: True)


def _run(model: PlainModel, vector: TestVector, expressions: dict[str, str], *, is_placed: bool) -> Iterator[str]:
    """Yield the C function running the model on the inputs of the vector."""
    names = model.names[vector.function]
    pools = _pool_variables(model)[0] if len(model.pools) == 1 else "&pools"
    memory = f"{pools}, constants" if model.constants.is_file else pools
    sizes = [f".{member} = {vector.sizes[symbol]}" for symbol, member in names.input_sizes.items()]
    yield "static int32_t run(void) {"
    yield from (f"  state.{member} = 0;" for member in names.lengths.values())
    if is_placed:
        for number, (member, array) in enumerate(zip(names.inputs, vector.inputs, strict=True)):
            source = f"(const void *)({expressions[f'in{number}']})"
            yield f"  memcpy({names.accessor('input', member)}({pools}), {source}, {array.nbytes});"
        if sizes:
            yield f"  const struct {names.input_structure} inputs = {{{', '.join(sizes)}}};"
        yield f"  return {names.run}({'&inputs, ' if sizes else ''}{memory});"
    else:
        pointers = [
            f".{member} = (const {_type(array)} *)(const void *)({expressions[f'in{number}']})"
            for number, (member, array) in enumerate(zip(names.inputs, vector.inputs, strict=True))
        ]
        yield from _structure(names.input_structure, "inputs", [*pointers, *sizes])
        outputs = [f".{member} = output_{number}" for number, member in enumerate(names.outputs)]
        yield from _structure(names.output_structure, "outputs", outputs)
        state = "&state, " if names.states else ""
        yield f"  return {names.run}(&inputs, &outputs, {state}{memory});"
    yield "}"


def _structure(kind: str, name: str, values: list[str]) -> Iterator[str]:
    yield f"  const struct {kind} {name} = {{"
    yield from (f"      {value}," for value in values or [".unused = 0"])
    yield "  };"


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
    yield "    if (x == y) continue;"
    yield "    if (!isfinite(x) || !isfinite(y)) error = INFINITY;"
    yield "    else if (fabs(x - y) > error) error = fabs(x - y);"
    yield "  }"
    yield "  const int is_right = error <= share * largest;"
    yield '  printf("%s: %zu elements, largest error %.3g of %.3g: %s\\n", name, count, error, largest,'
    yield '         is_right ? "right" : "WRONG");'
    yield "  return !is_right;"
    yield "}"
    yield ""


_CHECKS: dict[str, tuple[str, ...]] = {
    "float": tuple(_check("float", "float")),
    "double": tuple(_check("double", "double")),
    "bytes": (
        "static int check_bytes(const char *name, const void *got, const void *wanted, size_t count, double size) {",
        "  const unsigned char *a = got, *b = wanted;",
        "  size_t differences = 0;",
        "  for (size_t i = 0; i < count * (size_t)size; ++i) differences += a[i] != b[i];",
        '  printf("%s: %zu elements, %zu bytes differ: %s\\n", name, count, differences,',
        '         differences ? "WRONG" : "right");',
        "  return differences != 0;",
        "}",
        "",
    ),
}


def _kind(array: NDArray) -> str:
    return {"float32": "float", "float64": "double"}.get(array.dtype.name, "bytes")


def _tolerance(array: NDArray) -> str:
    """Return the share of the largest value allowed as error, or the bytes of an element compared bit by bit."""
    return {"float32": "1e-4", "float64": "1e-10"}.get(array.dtype.name, str(array.dtype.itemsize))


def _type(array: NDArray) -> str:
    return "uint16_t" if array.dtype.name in HALF_DTYPES else c_storage_type(array.dtype.name)


def program_without_vector(name: str) -> str:
    """Return the program of a model without a test vector."""
    return (
        "/* The model fails on the drawn inputs, or the exporting machine cannot run the model. */\n"
        f'#include <stdio.h>\n\n#include "{name}.h"\n\n'
        f'int main(void) {{\n  printf("{name}: no test vector\\n");\n  return 0;\n}}\n'
    )
