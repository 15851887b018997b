"""Random functions as exported C: under sanitizers, many models in one program, equal to the reference to the last bit.

    python -m plugins.ccompiler.tests.random_plain_c --models 2000 --seed 1 --jobs 2
    python -m plugins.ccompiler.tests.random_plain_c --models 1 --seed 4711

The functions are those of :mod:`plugins.ccompiler.tests.random_products`: products and convolutions of small whole
numbers among views and broadcast operands, with symbolic sizes, each run for several sizes, including 0 and 1. The
second line tries a single model. A batch of models becomes one program. A run gets inputs, outputs and a workspace of
exactly the stated bytes in memory of their own, so any access beyond these is an error of AddressSanitizer. The
workspace is filled with bytes of 0xFF (NaN) before each run, so reads of undefined memory show in the results.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
from byoc_core.artifact.plain_c.plain_model import PlainModel, plain_model
from byoc_core.dims import evaluate
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ByocError, CodegenError, IRTypeError
from byoc_core.ir import Function, FunctionBuilder, IRModule, TensorType
from byoc_core.transform import evaluate_function
from byoc_core.vm.program import VMFunction

from plugins.ccompiler.tests.random_products import grow

NDArray = npt.NDArray[Any]
BATCH = 40
RUNS = 3
"""How often each model runs, with new sizes."""
FLAGS = (
    *("-std=c11", "-O1", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-w"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
HEAD = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t read_number(void) {
  int64_t number;
  if (fread(&number, sizeof number, 1, stdin) != 1) exit(2);
  return number;
}
static void *new_memory(int64_t nbytes, int fill) {
  void *memory = NULL;
  if (posix_memalign(&memory, 64, (size_t)(nbytes ? nbytes : 1))) exit(3);
  memset(memory, fill, (size_t)(nbytes ? nbytes : 1));
  return memory;
}
static void *read_array(void) {
  const int64_t nbytes = read_number();
  void *memory = new_memory(nbytes, 0);
  if (nbytes && fread(memory, (size_t)nbytes, 1, stdin) != 1) exit(4);
  return memory;
}
static void write_result(int32_t status, void *const *outputs, const int64_t *sizes, int count) {
  fwrite(&status, sizeof status, 1, stdout);
  for (int i = 0; i < count && !status; ++i) fwrite(outputs[i], 1, (size_t)sizes[i], stdout);
}
"""


@dataclass(frozen=True)
class Run:
    """A run of a model: sizes, inputs, and the reference results; ``None`` if the reference refuses the sizes."""

    sizes: dict[str, int]
    inputs: tuple[NDArray, ...]
    outputs: tuple[NDArray, ...] | None
    shapes: tuple[tuple[tuple[int, ...], str], ...]


@dataclass(frozen=True)
class Model:
    """A drawn model with its runs."""

    seed: int
    module: IRModule
    plain: PlainModel
    function: VMFunction
    runs: tuple[Run, ...]


def draw_model(seed: int, name: str, obstacles: Counter[str]) -> Model | None:
    """Return the model of a seed; ``None``, with a count, if the model has no form in plain C."""
    rng = random.Random(seed)
    while True:
        builder = FunctionBuilder("main")
        try:
            case, results = grow(rng, builder)
        except IRTypeError:
            continue
        break
    function = builder.finish(*results)
    module = IRModule({"main": function}, builder.constants)
    options = {"winograd": "f2", "march": rng.choice(("native", "generic"))}
    executable = byoc_core.build(module, backends=["ccompiler"], options={"ccompiler": options})
    executable.require_offload(0.0)
    try:
        plain = plain_model(executable, name)
    except CodegenError as error:
        obstacles[str(error.detail)] += 1
        return None
    runs = tuple(found for found in (_draw_run(module, function, case) for _ in range(RUNS)) if found is not None)
    return Model(seed, module, plain, executable.program.functions[0], runs)


def _draw_run(module: IRModule, function: Function, case: Any) -> Run | None:
    sizes = case.sizes()
    types = [value.type for value in (*function.params, *function.results)]
    assert all(isinstance(type_, TensorType) for type_ in types)
    shapes = [tuple(evaluate(dim, sizes) for dim in t.shape or ()) for t in types if isinstance(t, TensorType)]
    if any(size < 0 for shape in shapes for size in shape):
        return None
    draws = np.random.default_rng(case.rng.randrange(1 << 32))
    dtypes = [t.dtype for t in types if isinstance(t, TensorType)]
    count = len(function.params)
    pairs = zip(shapes[:count], dtypes, strict=False)
    inputs = tuple(draws.integers(-3, 4, shape).astype(to_numpy(dtype)) for shape, dtype in pairs)
    try:
        outputs = tuple(map(np.ascontiguousarray, evaluate_function(module, "main", inputs)))
    except ByocError:
        return Run(sizes, inputs, None, tuple(zip(shapes[count:], dtypes[count:], strict=True)))
    return Run(sizes, inputs, outputs, tuple(zip(shapes[count:], dtypes[count:], strict=True)))


def driver(models: Sequence[Model]) -> str:
    """Return the program: for each run, the number of the model, then sizes and arrays on standard input."""
    lines = [f'#include "{model.plain.name}.h"' for model in models] + [HEAD]
    for model in models:
        name, names = model.plain.name, model.plain.names["main"]
        lines.append(f"static void run_{name}(void) {{")
        lines.append(f"  struct {name}_inputs inputs;")
        lines += [f"  inputs.{member} = read_number();" for member in names.sizes.values()]
        lines += [f"  inputs.{member} = read_array();" for member in names.inputs]
        count = len(names.outputs)
        lines.append(f"  int64_t sizes[{count}];")
        lines.append(f"  void *outputs[{count}];")
        lines.append(
            f"  for (int i = 0; i < {count}; ++i) sizes[i] = read_number(), outputs[i] = new_memory(sizes[i], 0xFF);"
        )
        values = ", ".join(f".{member} = outputs[{k}]" for k, member in enumerate(names.outputs))
        lines.append(f"  const struct {name}_outputs results = {{{values}}};")
        arguments = ", ".join(f"inputs.{member}" for member in names.sizes.values())
        lines.append(f"  const int64_t nbytes = {name}_workspace_size({arguments});")
        lines.append("  void *workspace = new_memory(nbytes < 0 ? 1 : nbytes, 0xFF);")
        lines.append(f"  write_result({names.run}(&inputs, &results, workspace), outputs, sizes, {count});")
        lines += [f"  free((void *)(uintptr_t)inputs.{member});" for member in names.inputs]
        lines += [f"  for (int i = 0; i < {count}; ++i) free(outputs[i]);", "  free(workspace);", "}"]
    lines.append(
        "int main(void) {\n  for (;;) {\n    const int64_t number = read_number();\n    if (number < 0) return 0;"
    )
    lines += [f"    if (number == {k}) run_{model.plain.name}();" for k, model in enumerate(models)]
    lines.append("  }\n}")
    return "\n".join(lines) + "\n"


def requests(models: Sequence[Model]) -> Iterator[bytes]:
    """Yield the standard input of the program."""

    def number(value: int) -> bytes:
        return value.to_bytes(8, sys.byteorder, signed=True)

    for index, model in enumerate(models):
        for run in model.runs:
            yield number(index)
            yield from (number(run.sizes[symbol]) for symbol in model.plain.names["main"].sizes)
            for array in run.inputs:
                yield number(array.nbytes)
                yield np.ascontiguousarray(array).tobytes()
            for shape, dtype in run.shapes:
                yield number(int(np.prod(shape)) * to_numpy(dtype).itemsize)
    yield number(-1)


def try_batch(first_seed: int, count: int, obstacles: Counter[str], jobs: int) -> tuple[int, list[str]]:
    """Try the models of neighbouring seeds; return the number of runs, and the faults."""
    models: list[Model] = []
    faults: list[str] = []
    for k in range(count):
        try:
            model = draw_model(first_seed + k, f"m{k}", obstacles)
        except ByocError as error:
            faults.append(f"seed {first_seed + k} cannot be built: {error}")
        else:
            models += [] if model is None else [model]
    with tempfile.TemporaryDirectory(prefix="byoc-plain-c-") as path:
        folder = Path(path)
        for model in models:
            for name, data in model.plain.files.items():
                (folder / name).write_bytes(data)
        (folder / "driver.c").write_text(driver(models))
        units = sorted(file.name for file in folder.glob("*.c"))

        def compile_unit(unit: str) -> None:
            command = ["gcc", *FLAGS, "-I.", "-c", unit, "-o", f"{unit[:-2]}.o"]
            finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if finished.returncode:
                raise AssertionError(f"seed {first_seed}, {unit}: {finished.stderr}")

        with ThreadPoolExecutor(max_workers=jobs) as pool:
            list(pool.map(compile_unit, units))
        objects = [f"{unit[:-2]}.o" for unit in units]
        subprocess.run(["gcc", *FLAGS, "-o", "driver", *objects, "-lm"], cwd=folder, check=True)
        finished = subprocess.run(
            [str(folder / "driver")], input=b"".join(requests(models)), capture_output=True, check=False
        )
    if finished.returncode:
        stderr = finished.stderr.decode()[:4000]
        return 0, [*faults, f"seeds from {first_seed}: status {finished.returncode}: {stderr}"]
    runs, more = _compare(models, finished.stdout)
    return runs, [*faults, *more]


def _compare(models: Sequence[Model], data: bytes) -> tuple[int, list[str]]:
    faults: list[str] = []
    position = runs = 0
    for model in models:
        for run in model.runs:
            runs += 1
            status = int.from_bytes(data[position : position + 4], sys.byteorder, signed=True)
            position += 4
            where = f"seed {model.seed}, sizes {run.sizes}\n{model.module}"
            if status or run.outputs is None:
                if not status or run.outputs is not None:
                    faults.append(
                        f"status {status}, but the reference {'refuses' if run.outputs is None else 'runs'}: {where}"
                    )
                for shape, dtype in () if status else run.shapes:
                    position += int(np.prod(shape)) * to_numpy(dtype).itemsize
                continue
            for expected in run.outputs:
                got = np.frombuffer(data, expected.dtype, expected.size, position).reshape(expected.shape)
                position += expected.nbytes
                if not np.array_equal(got, expected):
                    faults.append(f"other results than the reference: {where}")
    return runs, faults


def search(num_models: int, seed: int, jobs: int, *, quiet: bool = False) -> tuple[int, Counter[str], list[str]]:
    """Try models in batches; return the number of runs, the models without a form in C by reason, and the faults."""
    obstacles: Counter[str] = Counter()
    faults: list[str] = []
    runs = done = 0
    while done < num_models:
        count = min(BATCH, num_models - done)
        try:
            more, found = try_batch(seed + done, count, obstacles, jobs)
        except Exception as error:
            more, found = 0, [f"seeds from {seed + done}: {type(error).__name__}: {error}"]
        runs += more
        faults += found
        done += count
        if not quiet:
            print(
                f"{done} models, {runs} runs, {sum(obstacles.values())} without a form in C, {len(faults)} faults",
                flush=True,
            )
            for fault in found:
                print(fault, flush=True)
    return runs, obstacles, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=200, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first; the next ones follow")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at once")
    arguments = parser.parse_args()
    if shutil.which("gcc") is None:
        print("no gcc: apt-get install gcc")
        return 1
    _, obstacles, faults = search(arguments.models, arguments.seed, arguments.jobs)
    for text, count in obstacles.most_common():
        print(f"{count} without a form in C: {text}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
