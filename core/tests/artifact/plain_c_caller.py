"""Exported C, compiled with all warnings and sanitizers, and called on arrays from Python."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.digest import digest_of
from byoc_core.dims import parse_dim, symbol
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import NDArray, Signature, TensorSpec
from byoc_core.vm import ConstantRef, PlannedTensor, Program, Ret, VirtualMachine, VMFunction

from core.tests.artifact.test_library_program import extern, tensors

__all__ = [
    "FLAGS",
    "WARNINGS",
    "ExportedC",
    "compile_c",
    "cubing",
    "needs_gcc",
    "program",
    "run_program",
    "scaler",
    "scaling",
]

WARNINGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffp-contract=off")
FLAGS = (*WARNINGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

N = symbol("n")

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="`gcc` is not on PATH")

_CALLER = """\
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

/* Return a block of exactly these bytes, filled with 0xff. */
static void *new_block(int64_t nbytes) {{
  void *block = NULL;
  if (posix_memalign(&block, 64, nbytes > 0 ? (size_t)nbytes : 1)) exit(100);
  return memset(block, 0xff, nbytes > 0 ? (size_t)nbytes : 1);
}}

int main(void) {{
  int64_t numbers[{num_blocks} + {num_sizes} + 1];
  if (fread(numbers, sizeof *numbers, {num_blocks} + {num_sizes}, stdin) != {num_blocks} + {num_sizes}) return 100;
  void *blocks[{num_blocks} + 1];
  for (int i = 0; i < {num_blocks}; ++i) {{
    blocks[i] = new_block(numbers[i]);
    if (i < {num_inputs} && fread(blocks[i], 1, (size_t)numbers[i], stdin) != (size_t)numbers[i]) return 100;
  }}
  const struct {prefix}_inputs inputs = {{{inputs}}};
  const struct {prefix}_outputs outputs = {{{outputs}}};
  void *workspace = new_block({prefix}_workspace_size({sizes}));
  const int32_t status = {run}(&inputs, &outputs, workspace);
  fwrite(&status, sizeof status, 1, stdout);
  for (int i = {num_inputs}; i < {num_blocks}; ++i) fwrite(blocks[i], 1, (size_t)numbers[i], stdout);
  for (int i = 0; i < {num_blocks}; ++i) free(blocks[i]);
  free(workspace);
  return 0;
}}
"""


def compile_c(folder: Path, sources: Sequence[str], program: str = "program", flags: Sequence[str] = FLAGS) -> Path:
    """Compile and link C files of a folder; fail the test with the compiler's output."""
    command = ["gcc", *flags, "-I.", *sources, "-lm", "-o", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / program


def run_program(program: Path) -> str:
    """Run a program; return the output, and fail the test for any other status than 0."""
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass
class ExportedC:
    """An executable exported to a folder.

    Attributes:
        executable: the executable.
        folder: the folder of the export.
        name: the model's name.
        suffixes: the suffix of the C names of each called function; by default none for ``main``, else ``_<name>``.
        options: options of the export.
        flags: the flags of the compiler.
    """

    executable: Executable
    folder: Path
    name: str = "model"
    suffixes: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    flags: Sequence[str] = FLAGS
    _programs: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.executable.export_c(self.folder, name=self.name, **self.options)

    @property
    def sources(self) -> list[str]:
        """The C files of the model, without the test program."""
        own = sorted(path.name for path in self.folder.glob(f"{self.name}*.c"))
        return [file for file in own if not file.startswith((f"{self.name}_test", f"{self.name}_call"))]

    @property
    def header(self) -> str:
        """The text of the header."""
        return (self.folder / f"{self.name}.h").read_text()

    def call(
        self, function: str, arrays: Sequence[NDArray], results: Sequence[NDArray], sizes: Sequence[int] = ()
    ) -> tuple[int, list[NDArray]]:
        """Return the status, and arrays in the shape of ``results``; ``sizes`` are in the order of the structure."""
        if function not in self._programs:
            self._programs[function] = self._compile(function, len(arrays), len(results), len(sizes))
        numbers = np.array([*(array.nbytes for array in (*arrays, *results)), *sizes], np.int64)
        data = numbers.tobytes() + b"".join(array.tobytes() for array in arrays)
        done = subprocess.run([self._programs[function]], input=data, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        status, rest, found = int(np.frombuffer(done.stdout[:4], np.int32)[0]), done.stdout[4:], []
        for result in results:
            found.append(np.frombuffer(rest[: result.nbytes], result.dtype).reshape(result.shape))
            rest = rest[result.nbytes :]
        assert not rest
        return status, found

    def check(self, function: str, arrays: Sequence[NDArray], sizes: Sequence[int] = ()) -> tuple[NDArray, ...]:
        """Compare the outputs with the virtual machine, bit by bit; return the outputs."""
        expected = VirtualMachine(self.executable)[function](*arrays)
        results = expected if isinstance(expected, tuple) else (expected,)
        status, found = self.call(function, arrays, results, sizes)
        assert status == 0
        for array, result in zip(found, results, strict=True):
            assert array.tobytes() == np.ascontiguousarray(result).tobytes()
        return results

    def _compile(self, function: str, num_inputs: int, num_outputs: int, num_sizes: int) -> Path:
        suffix = self.suffixes.get(function, "" if function == "main" else f"_{function}")
        sizes = [f"numbers[{num_inputs + num_outputs + k}]" for k in range(num_sizes)]
        blocks = [f"blocks[{k}]" for k in range(num_inputs + num_outputs)]
        text = _CALLER.format(
            name=self.name,
            prefix=f"{self.name}{suffix}",
            run=f"{self.name}_run{suffix}",
            num_inputs=num_inputs,
            num_blocks=num_inputs + num_outputs,
            num_sizes=num_sizes,
            sizes=", ".join(sizes),
            inputs=", ".join([*blocks[:num_inputs], *sizes]) or "0",
            outputs=", ".join(blocks[num_inputs:]) or "0",
        )
        caller = f"{self.name}_call{suffix}.c"
        (self.folder / caller).write_text(text)
        return compile_c(self.folder, [*self.sources, caller], f"call{suffix}", self.flags)


_SCALER = """\
#include "byoc_ffi.h"

BYOC_CONSTANT_TABLE(1);

BYOC_EXPORT int32_t NAME_(const float *x, float *out, int64_t dim_n) {
  if (dim_n == 13) return byoc_fail("ValueError", "function `NAME`: fails on 13 elements");
  const float factor = *(const float *)byoc_constants[0];
  for (int64_t i = 0; i < dim_n; ++i) out[i] = x[i] * factor;
  return 0;
}

#ifndef BYOC_PLAIN_C
BYOC_EXPORT int32_t __tvm_ffi_NAME(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)handle;
  (void)result;
  if (byoc_check_count("NAME", num_args, 2)) return -1;
  const DLTensor *x = byoc_tensor("NAME", "x", &args[0]);
  const DLTensor *out = byoc_tensor("NAME", "out", &args[1]);
  if (!x || !out || byoc_check_tensor("NAME", "x", x, kDLFloat, 32, 1)) return -1;
  return NAME_(byoc_data(x), byoc_data(out), x->shape[0]);
}
#endif
"""


def scaler(name: str, factor: float, old: str = "", new: str = "") -> CSourceModule:
    """Return a module with a function ``out = x * factor`` over ``n`` elements; fails on 13 elements.

    The text ``old`` of the source is replaced by ``new``.
    """
    constant = np.array([factor], "float32")
    spec = TensorSpec("x", "float32", (N,))
    source = _SCALER.replace("NAME", name)
    assert old in source
    return CSourceModule(
        source.replace(old, new) if old else source,
        {name: Signature((spec,), (spec,))},
        constants={digest_of(constant): constant},
    )


def program(
    functions: tuple[VMFunction, ...], *modules: CSourceModule, constants: tuple[NDArray, ...] = ()
) -> Executable:
    """Return an executable of functions, generated modules, and constants of the program."""
    references = tuple(ConstantRef(digest_of(array), array.dtype.name, array.shape) for array in constants)
    externs = tuple(name for module in modules for name in module.function_names)
    return Executable(Program(functions, externs, references), modules, {digest_of(a): a for a in constants})


def scaling(name: str = "main", index: int = 0) -> VMFunction:
    """Return a function y = x * factor, for a module of :func:`scaler`."""
    return VMFunction(name, tensors((N,)), tensors((N,), prefix="y"), (), (), (), (), (extern(index, 0, 1), Ret((1,))))


def cubing(factor: float) -> Executable:
    """Return y = x * factor * factor * factor, with the same names of generated functions for any factor."""
    planned = (PlannedTensor(0, 0, "float32", (N,)), PlannedTensor(1, 0, "float32", (N,)))
    code = (extern(0, 0, 2), extern(0, 2, 3), extern(0, 3, 1), Ret((1,)))
    storages = (parse_dim("4*n"), parse_dim("4*n"))
    main = VMFunction("main", tensors((N,)), tensors((N,), prefix="y"), (), storages, planned, (), code)
    return program((main,), scaler("scale", factor))
