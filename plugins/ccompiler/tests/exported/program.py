"""A program of many exported models under sanitizers: inputs come from a file, outputs go to another.

Each array is a heap block of its exact size, so AddressSanitizer's redzones surround inputs, outputs and workspace.
Before each run, outputs and workspace are filled with 0xFF.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.artifact.plain_c.plain_model import PlainModel
from byoc_core.dims import evaluate, match_symbols
from byoc_core.dtypes import to_numpy
from byoc_core.vm.program import ALIGNMENT, VMFunction

__all__ = ["FLAGS", "Export", "RunResult", "run_exports"]

NDArray = npt.NDArray[Any]
FLAGS = ("-std=c11", "-O1", "-ffp-contract=off", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_TIMEOUT_S = 1200
_HEAD = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *input, *output;
static void *new_block(int64_t nbytes) {
  void *block = NULL;
  if (nbytes < 0 || posix_memalign(&block, ALIGNMENT, (size_t)nbytes) || !block) exit(3);
  return memset(block, 0xFF, (size_t)nbytes);
}
static void *read_block(int64_t nbytes) {
  void *block = new_block(nbytes);
  if (fread(block, 1, (size_t)nbytes, input) != (size_t)nbytes) exit(4);
  return block;
}
static void write_block(void *block, int64_t nbytes) {
  if (fwrite(block, 1, (size_t)nbytes, output) != (size_t)nbytes) exit(5);
  free(block);
}
static void begin(int32_t model, int64_t offset) {
  fprintf(stderr, "model %d\\n", (int)model);
  if (fseek(input, (long)offset, SEEK_SET)) exit(6);
}
"""
_MAIN = """\
int main(int argc, char **argv) {{
  if (argc != 4) return 2;
  input = fopen(argv[1], "rb");
  output = fopen(argv[2], "ab");
  if (!input || !output) return 7;
  for (int model = atoi(argv[3]); model < {count}; ++model) models[model]();
  return fclose(output) ? 8 : 0;
}}
"""


@dataclass(frozen=True)
class Export:
    """An exported model and its calls.

    Attributes:
        model: the exported C.
        function: the called function.
        calls: arrays per parameter, for each call.
    """

    model: PlainModel
    function: VMFunction
    calls: Sequence[Sequence[NDArray]]

    def sizes(self, inputs: Sequence[NDArray]) -> Mapping[str, int]:
        """Return the sizes of the symbols in a call."""
        declared = [dim for spec in self.function.params for dim in spec.shape]
        passed = [size for array in inputs for size in array.shape]
        return {name: evaluate(size, {}) for name, size in match_symbols(declared, passed).items()}

    def output_shapes(self, inputs: Sequence[NDArray]) -> list[tuple[int, ...]]:
        """Return the shapes of the outputs of a call."""
        sizes = self.sizes(inputs)
        return [tuple(evaluate(dim, sizes) for dim in spec.shape) for spec in self.function.results]


@dataclass(frozen=True)
class RunResult:
    """The outcome of a model's calls.

    Attributes:
        outputs: arrays of each finished call.
        problem: the report of a sanitizer, or a wrong status; empty if none.
    """

    outputs: Sequence[Sequence[NDArray]]
    problem: str = ""


def run_exports(exports: Sequence[Export], folder: Path) -> list[RunResult]:
    """Compile all models into one program, run the program, and return the outcome of each model.

    After a crash, the program starts again behind the guilty model. A model refused by the C compiler is left out.

    Args:
        exports: the models; their names differ.
        folder: an empty folder for sources, objects and arrays.

    Raises:
        CalledProcessError: the models cannot be linked together.
    """
    refused = {export.model.name: _compile_model(export.model, folder / export.model.name) for export in exports}
    compiled = [export for export in exports if not refused[export.model.name]]
    found = _run_all(compiled, folder) if compiled else []
    results = {export.model.name: result for export, result in zip(compiled, found, strict=True)}
    return [results.get(e.model.name, RunResult((), refused[e.model.name])) for e in exports]


def _run_all(exports: Sequence[Export], folder: Path) -> list[RunResult]:
    program = _link(exports, folder)
    found: list[RunResult] = []
    while len(found) < len(exports):
        found += _run(exports, program, folder, len(found))
    return found


def _compile_model(model: PlainModel, folder: Path) -> str:
    """Write and compile a model; return the errors of the C compiler."""
    folder.mkdir()
    for name, data in model.files.items():
        (folder / name).write_bytes(data)
    arch = [] if model.options.march == "generic" else [f"-march={model.options.march}"]
    try:
        _compile(["gcc", *FLAGS, "-Wall", "-Werror", *arch, "-c", *_sources(model)], folder)
    except subprocess.CalledProcessError as error:
        return f"C compiler: {error.stderr[:4000]}"
    return ""


def _sources(model: PlainModel) -> list[str]:
    return [name for name in model.files if name.endswith(".c")]


def _link(exports: Sequence[Export], folder: Path) -> Path:
    objects = [f"{e.model.name}/{name[:-2]}.o" for e in exports for name in _sources(e.model)]
    (folder / "inputs.bin").write_bytes(b"".join(_input_bytes(call) for e in exports for call in e.calls))
    (folder / "main.c").write_text(_main_program(exports), encoding="utf-8")
    program = folder / "program"
    _compile(["gcc", *FLAGS, "-Wall", "-Werror", "-I.", "main.c", *objects, "-o", "program", "-lm"], folder)
    return program


def _compile(command: Sequence[str], folder: Path) -> None:
    finished = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S, errors="replace"
    )
    if finished.returncode:
        raise subprocess.CalledProcessError(finished.returncode, command, finished.stdout, finished.stderr)


def _input_bytes(call: Sequence[NDArray]) -> bytes:
    return b"".join(array.tobytes() for array in call)


def _main_program(exports: Sequence[Export]) -> str:
    lines = [
        f"#define _POSIX_C_SOURCE 200112L\n#define ALIGNMENT {ALIGNMENT}",
        *(f'#include "{e.model.name}/{e.model.name}.h"' for e in exports),
        _HEAD,
    ]
    offset = 0
    for number, export in enumerate(exports):
        lines.append(f"static void run_{number}(void) {{")
        lines.append(f"  begin({number}, {offset});")
        for call in export.calls:
            lines += _call_text(export, call)
            offset += len(_input_bytes(call))
        lines.append("}")
    names = ", ".join(f"run_{number}" for number in range(len(exports)))
    lines += [f"static void (*const models[])(void) = {{{names}}};", _MAIN.format(count=len(exports))]
    return "\n".join(lines)


def _call_text(export: Export, call: Sequence[NDArray]) -> Iterator[str]:
    """Yield the C of a call: status and bytes of the workspace go to the file, and the outputs after a success."""
    names, sizes = export.model.names[export.function.name], export.sizes(call)
    prefix = f"{export.model.name}{names.suffix}"
    outputs = [_nbytes(export, call, index) for index in range(len(export.function.results))]
    yield "  {"
    for index, array in enumerate(call):
        yield f"    void *const input_{index} = read_block({array.nbytes});"
    for index, nbytes in enumerate(outputs):
        yield f"    void *const output_{index} = new_block({nbytes});"
    members = [f".{member} = input_{index}" for index, member in enumerate(names.inputs)]
    members += [f".{member} = {sizes[symbol]}" for symbol, member in names.sizes.items()]
    yield f"    const struct {prefix}_inputs inputs = {{{', '.join(members) or '.unused = 0'}}};"
    members = [f".{member} = output_{index}" for index, member in enumerate(names.outputs)]
    yield f"    const struct {prefix}_outputs outputs = {{{', '.join(members) or '.unused = 0'}}};"
    arguments = ", ".join(str(sizes[symbol]) for symbol in names.sizes)
    (stated,) = export.model.layouts[export.function.name].nbytes
    constant = isinstance(stated, int)
    yield f"    const int64_t workspace_size = {prefix}_workspace_size({arguments});"
    if constant:
        yield f"    if (workspace_size != {prefix.upper()}_WORKSPACE_SIZE) exit(9);"
    yield "    void *const workspace = new_block(workspace_size);"
    yield f"    const int64_t status = {names.run}(&inputs, &outputs, workspace);"
    yield "    fwrite(&status, sizeof status, 1, output);"
    for index, nbytes in enumerate(outputs):
        yield f"    write_block(output_{index}, {nbytes});"
    yield from (f"    free(input_{index});" for index in range(len(call)))
    yield "    free(workspace);"
    yield "    fflush(output);"
    yield "  }"


def _nbytes(export: Export, call: Sequence[NDArray], index: int) -> int:
    itemsize = to_numpy(export.function.results[index].dtype).itemsize
    return int(np.prod(export.output_shapes(call)[index], dtype=np.int64)) * itemsize


def _run(exports: Sequence[Export], program: Path, folder: Path, first: int) -> Iterator[RunResult]:
    """Run the models from a number on; yield their outcomes up to the first crash."""
    output = folder / f"outputs_{first}.bin"
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1"}
    command = [str(program), "inputs.bin", str(output), str(first)]
    finished = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
        env=environment,
        errors="replace",
    )
    data = memoryview(output.read_bytes())
    marks = [line for line in finished.stderr.splitlines() if line.startswith("model ")]
    last = int(marks[-1].split()[1]) if marks else first
    for number in range(first, last + 1):
        crash = ""
        if number == last and finished.returncode:
            report = finished.stderr[finished.stderr.rfind("\nmodel ") + 1 :]
            crash = f"exit status {finished.returncode}\n{report[:6000]}"
        result, data = _read(exports[number], data, crash)
        yield result


def _read(export: Export, data: memoryview, crash: str) -> tuple[RunResult, memoryview]:
    """Read the outputs of a model from the file; return the outcome, and the rest of the file."""
    found: list[list[NDArray]] = []
    problem = crash
    for number, call in enumerate(export.calls):
        if crash and not data:
            break
        (status,) = struct.unpack_from("=q", data)
        data = data[8:]
        arrays: list[NDArray] = []
        for index, (spec, shape) in enumerate(zip(export.function.results, export.output_shapes(call), strict=True)):
            nbytes = _nbytes(export, call, index)
            arrays.append(np.frombuffer(data[:nbytes], to_numpy(spec.dtype)).reshape(shape))
            data = data[nbytes:]
        if status:
            problem = problem or f"call {number}: status {status}"
        found.append(arrays)
    return RunResult(found, problem), data
