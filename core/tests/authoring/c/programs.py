"""C programs running printed functions on given numbers and printing the bytes of the results."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from byoc_core.authoring.c import Buffer, Function, Target, print_definitions, symbols_in
from byoc_core.native.toolchain import find_toolchain, include_directory

from core.tests.authoring.c.nests import Case, arrays_of

__all__ = ["program_of", "run_program"]

_HEAD = """#include <stdio.h>
#include <stdlib.h>
#include "byoc_ffi.h"
#include "byoc_scalar.h"
static inline void byoc_parallel_for(
    int64_t count, int64_t grain, void (*part)(int64_t, int64_t, const void *), const void *data) {
  for (int64_t first = (count - 1) / grain * grain; first >= 0; first -= grain)
    part(first, first + grain < count ? first + grain : count, data);
}
static inline void byoc_share_for(
    int64_t count, int64_t grain, void (*part)(int64_t, int64_t, const void *), const void *data) {
  byoc_parallel_for(count, grain, part, data);
}
static void *copied(const void *data, size_t nbytes) {
  void *memory = malloc(nbytes);
  if (memory == NULL) exit(1);
  memcpy(memory, data, nbytes);
  return memory;
}
static void shown(const float *values, size_t count) {
  for (size_t k = 0; k < count; ++k) {
    uint32_t word;
    memcpy(&word, values + k, sizeof(word));
    printf("%08x", (unsigned)word);
  }
  printf("\\n");
}
"""


def program_of(runs: Sequence[tuple[Function, Case]], target: Target) -> str:
    """Return a C program: each function runs once and prints each output as a line of hexadecimal words."""
    mains, calls = [], []
    for number, (function, case) in enumerate(runs):
        arrays = arrays_of(case)
        lines = []
        for place, parameter in enumerate(function.parameters):
            assert isinstance(parameter, Buffer)
            words = arrays[parameter].view(np.uint32)
            text = ", ".join(f"{word}U" for word in words)
            lines.append(f"  static const uint32_t data{place}[] = {{{text}}};")
            lines.append(f"  float *a{place} = copied(data{place}, sizeof(data{place}));")
        names = [f"a{place}" for place in range(len(function.parameters))]
        sizes = [str(case.sizes[name]) for name in sorted(symbols_in(function.body))]
        lines.append(f"  {function.name}({', '.join([*names, *sizes])});")
        for place, parameter in enumerate(function.parameters):
            if parameter in case.outputs:
                lines.append(f"  shown(a{place}, {arrays[parameter].size});")
            lines.append(f"  free(a{place});")
        mains.append("\n".join([f"static void run{number}(void) {{", *lines, "}"]))
        calls.append(f"  run{number}();")
    functions = print_definitions([function for function, _ in runs], target)
    return "\n".join([_HEAD, functions, *mains, "int main(void) {", *calls, "  return 0;", "}", ""])


def run_program(
    text: str, flags: Sequence[str], folder: Path, compiler: Sequence[str] = (), emulator: Sequence[str] = ()
) -> list[bytes]:
    """Return the bytes of the outputs of a program, in order.

    Args:
        text: the program.
        flags: flags of the compiler.
        folder: the folder for source and program.
        compiler: a command; by default the compiler of this machine.
        emulator: the command running the program; none by default.
    """
    source, program = folder / "program.c", folder / "program"
    source.write_text(text, encoding="utf-8")
    # Whether a short tile's sums have a value before they are read is more than compilers find out.
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-maybe-uninitialized", "-Wno-unknown-warning-option"]
    command = [*(compiler or find_toolchain().command), *flags, *warnings, f"-I{include_directory()}"]
    built = subprocess.run([*command, source, "-o", program, "-lm"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([*emulator, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [
        np.array([int(line[k : k + 8], 16) for k in range(0, len(line), 8)], np.uint32).tobytes()
        for line in done.stdout.splitlines()
    ]
