"""Programs calling the functions of a C module: arrays come from a file, results go to another."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.authoring.csource import c_type
from byoc_core.dims import evaluate, symbols_of
from byoc_core.dtypes import to_numpy
from byoc_core.native.toolchain import include_directory
from byoc_core.runtime.csource import CSourceModule

from plugins.ccompiler.tests.processors.machines import Machine

__all__ = ["Call", "run_calls"]

NDArray = npt.NDArray[Any]

_MAIN = """
#include <stdio.h>
static FILE *input, *output;
static void *new_block(size_t nbytes) {
  void *block = aligned_alloc(64, (nbytes + 127) / 64 * 64);
  if (!block) exit(3);
  return memset(block, 0x55, nbytes);
}
static void *read_block(size_t nbytes) {
  void *block = new_block(nbytes);
  if (fread(block, 1, nbytes, input) != nbytes) exit(4);
  return block;
}
static void write_block(const void *block, size_t nbytes) {
  if (fwrite(block, 1, nbytes, output) != nbytes) exit(5);
}
static void check(const char *name, int32_t status) {
  if (!status) return;
  fprintf(stderr, "%s: %s\\n", name, byoc_last_error());
  exit(6);
}
"""


@dataclass(frozen=True)
class Call:
    """A call of a function of a module.

    Attributes:
        symbol: the function.
        inputs: the arguments.
        sizes: the sizes of the symbols.
    """

    symbol: str
    inputs: Sequence[NDArray]
    sizes: Mapping[str, int]


def run_calls(module: CSourceModule, calls: Sequence[Call], machine: Machine, folder: Path) -> list[list[NDArray]]:
    """Return the results of calls, compiled into one program and run on a machine."""
    outputs = [_outputs(module, call) for call in calls]
    source, program = folder / "module.c", folder / "program"
    source.write_text(machine.guard + module.get_source() + _main(module, calls, outputs), "utf-8")
    native = Path(include_directory())
    parallel = [native / f"byoc_{name}.c" for name in ("parallel", "places") if module.uses_threads]
    flags = ("-std=gnu11", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", f"-I{native}")
    files = map(str, (source, native / "byoc_ffi.c", *parallel, "-o", program))
    command = [*machine.compiler, *flags, *machine.vectors.flags, *files, "-lm", "-ldl", "-pthread"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    blocks = [*module.constants.values(), *(array for call in calls for array in call.inputs)]
    (folder / "input").write_bytes(b"".join(np.ascontiguousarray(array).tobytes() for array in blocks))
    run = [*machine.emulator, *map(str, (program, folder / "input", folder / "output"))]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    data, offset = (folder / "output").read_bytes(), 0
    for array in (array for arrays in outputs for array in arrays):
        array[...] = np.frombuffer(data, array.dtype, array.size, offset).reshape(array.shape)
        offset += array.nbytes
    assert offset == len(data)
    return outputs


def _outputs(module: CSourceModule, call: Call) -> list[NDArray]:
    """Return arrays for the results of a call."""
    specs = module.signatures[call.symbol].outputs
    return [np.zeros([evaluate(dim, call.sizes) for dim in spec.shape], to_numpy(spec.dtype)) for spec in specs]


def _main(module: CSourceModule, calls: Sequence[Call], outputs: Sequence[Sequence[NDArray]]) -> str:
    """Return the C of the program's own functions."""
    lines, names = [], []
    for number, (call, results) in enumerate(zip(calls, outputs, strict=True)):
        signature = module.signatures[call.symbol]
        specs = (*signature.inputs, *signature.outputs)
        symbols = sorted({name for spec in specs for dim in spec.shape for name in symbols_of(dim)})
        arguments = [f"a{index}" for index in range(len(specs))]
        arguments += [str(call.sizes[name]) for name in symbols]
        arguments += ["NULL"] * (module.call_traits(call.symbol).workspace_nbytes != 0)
        lines.append(f"static void call{number}(void) {{")
        for index, (spec, array) in enumerate(zip(specs, (*call.inputs, *results), strict=True)):
            maker = "read_block" if index < len(signature.inputs) else "new_block"
            lines.append(f"  {c_type(spec.dtype)} *a{index} = {maker}({array.nbytes});")
        lines.append(f'  check("{call.symbol}", {call.symbol}_({", ".join(arguments)}));')
        for index, array in enumerate(results, len(signature.inputs)):
            lines.append(f"  write_block(a{index}, {array.nbytes});")
        lines += [*(f"  free(a{index});" for index in range(len(specs))), "}"]
        names.append(f"call{number}")
    constants = [array.nbytes for array in module.constants.values()]
    lines += [
        "int main(int argc, char **argv) {",
        '  if (argc != 3 || !(input = fopen(argv[1], "rb")) || !(output = fopen(argv[2], "wb"))) return 2;',
        *(f"  byoc_constants[{number}] = read_block({nbytes});" for number, nbytes in enumerate(constants)),
        *(f"  {name}();" for name in names),
        "  return fclose(output) ? 7 : 0;",
        "}",
    ]
    return _MAIN + "\n".join(lines) + "\n"
