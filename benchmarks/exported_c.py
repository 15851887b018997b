"""Microseconds of a run of exported C, in the virtual machine, of portable C, and of ONNX Runtime's C API.

All use one thread. Exported C is compiled by ``gcc -O3 -march=native`` with its own test program, checked against the
virtual machine before any measurement; portable C is the export with the option ``portable``. ONNX Runtime runs in a C
program of its own, with tensors bound to fixed memory, so no Python takes part; the functions of its C API are called
by their stable positions in the table.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
from byoc_core.runtime.module import NDArray
from onnx import TensorProto, helper

from benchmarks.models import load_model
from benchmarks.pairing import Samples, measure, paired_ratio
from benchmarks.tables import Table, show, table_to_json

__all__ = ["MODELS", "run"]

BACKEND = "ccompiler"
MODELS = ("add", "mlp_1", "lenet", "lstm", "quantised_convnet", "light_squeezenet", "bert", "light_resnet50")
SAMPLE_S = 0.2
MIN_RUNS = 10
"""Runs in a sample: the first runs of a process load the weights."""
NATIVE = "CFLAGS=-std=c11 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -march=native"
_ELEMENTS = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float64": 11}
"""The numbers of element types in the C API."""

_DRIVER = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
  const void *(*get_api)(uint32_t version);
  const char *(*get_version)(void);
} api_base;
extern const api_base *OrtGetApiBase(void);
typedef void *status;
#define API(index, ...) ((status(*)(__VA_ARGS__))table[index])
#define CHECK(call) do { if (call) { printf("the call at line %d failed\\n", __LINE__); return 1; } } while (0)

@arrays@
int main(int argc, char **argv) {
  const long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
  void *const *table = OrtGetApiBase()->get_api(11);
  void *env, *options, *session, *memory, *values[@count@];
  CHECK(API(3, int, const char *, void **)(3, "benchmark", &env));
  CHECK(API(10, void **)(&options));
  CHECK(API(24, void *, int)(options, 1));
  CHECK(API(23, void *, int)(options, 99));
  CHECK(API(7, void *, const char *, void *, void **)(env, "model.onnx", options, &session));
  CHECK(API(69, int, int, void **)(1, 0, &memory));
@values@
  const char *const inputs[] = {@inputs@}, *const outputs[] = {@outputs@};
  for (long i = 0; i < 3; ++i) {
    CHECK(API(9, void *, void *, const char *const *, void *const *, size_t, const char *const *, size_t, void **)(
        session, NULL, inputs, values, @num_inputs@, outputs, @num_outputs@, values + @num_inputs@));
  }
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (long i = 0; i < rounds; ++i) {
    API(9, void *, void *, const char *const *, void *const *, size_t, const char *const *, size_t, void **)(
        session, NULL, inputs, values, @num_inputs@, outputs, @num_outputs@, values + @num_inputs@);
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  printf("%.3f us per run\\n",
         ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) / 1e3 / (double)rounds);
  return 0;
}
"""


def run(num_rounds: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return microseconds of a run by engine and model, and ratios to the exported C."""
    table: Table = {}
    for name in models or MODELS:
        with tempfile.TemporaryDirectory(prefix="byoc-exported-") as folder:
            for engine, samples in _measure(name, Path(folder), num_rounds).items():
                table.setdefault(engine, {})[name] = samples
    ratios = {
        f"{engine} over exported C": {name: paired_ratio(row[name], table["exported C"][name]) for name in row}
        for engine, row in table.items()
        if engine != "exported C"
    }
    show(f"microseconds of a run, medians of {num_rounds} rounds", table)
    show("time in units of the exported C", ratios)
    return {"unit": "us", "time": table_to_json(table), "ratios": table_to_json(ratios)}


def _measure(name: str, folder: Path, num_rounds: int) -> dict[str, Samples]:
    model, inputs = load_named_model(name)
    executable = byoc_core.build(byoc_core.from_onnx(model), backends=[BACKEND])
    executable.require_offload(0.99)
    machine = byoc_core.VirtualMachine(executable, num_threads=1)
    results = machine.run("main", inputs)
    outputs = results if isinstance(results, tuple) else (results,)
    options = {BACKEND: {"portable": True}}
    portable = byoc_core.build(byoc_core.from_onnx(model), backends=[BACKEND], options=options)
    portable.require_offload(0.99)
    for part, exported, flags in (("c", executable, ()), ("portable", portable, (NATIVE,))):
        exported.export_c(folder / part, test_inputs=inputs, constants="object")
        command = ["make", "-s", "-j2", "check", "CC=gcc", *flags]
        subprocess.run(command, cwd=folder / part, check=True, stdout=subprocess.DEVNULL)
    onnx.save(model, str(folder / "model.onnx"))
    _check_peer(model, inputs, outputs)
    _build_driver(folder, model, inputs, outputs)
    bound = {spec.name: np.empty_like(a) for spec, a in zip(executable.signature("main").outputs, outputs, strict=True)}
    start = time.perf_counter()
    machine.run("main", inputs, out=bound)
    machine.run("main", inputs, out=bound)
    rounds = max(MIN_RUNS, int(SAMPLE_S / ((time.perf_counter() - start) / 2)))

    def run_machine() -> float:
        begin = time.perf_counter()
        for _ in range(rounds):
            machine.run("main", inputs, out=bound)
        return (time.perf_counter() - begin) / rounds

    seconds = measure(
        {
            "exported C": _process([str(folder / "c" / "model_test"), str(rounds)], folder),
            "portable C": _process([str(folder / "portable" / "model_test"), str(rounds)], folder),
            "virtual machine": run_machine,
            "ONNX Runtime, C API": _process([str(folder / "peer"), str(rounds)], folder),
        },
        num_rounds=num_rounds,
    )
    return {engine: Samples(tuple(value * 1e6 for value in samples.values)) for engine, samples in seconds.items()}


def _process(command: Sequence[str], folder: Path) -> Callable[[], float]:
    """Return a function running a program, with the seconds of a run as reported by the program."""

    def run_program() -> float:
        finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        (line,) = (line for line in finished.stdout.splitlines() if line.endswith("us per run"))
        return float(line.split()[0]) / 1e6

    return run_program


def load_named_model(name: str) -> tuple[onnx.ModelProto, dict[str, NDArray]]:
    """Return a model and inputs: a model of :mod:`benchmarks.models`, or ``add``."""
    return _add_model() if name == "add" else load_model(name)


def _add_model() -> tuple[onnx.ModelProto, dict[str, NDArray]]:
    """Return the sum of two vectors of four elements."""
    specs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y", "z")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "add", specs[:2], specs[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {"x": np.arange(4, dtype=np.float32), "y": np.ones(4, np.float32)}


def _check_peer(model: onnx.ModelProto, inputs: Mapping[str, NDArray], outputs: Sequence[NDArray]) -> None:
    """Compare ONNX Runtime's outputs with the virtual machine's before any measurement."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for expected, got in zip(session.run(None, dict(inputs)), outputs, strict=True):
        largest = float(np.abs(expected).max())
        difference = float(np.abs(expected.astype(np.float64) - got.astype(np.float64)).max())
        # A quantised network may round a sum to the other neighbour.
        if difference > 2e-2 * largest:
            raise SystemExit(f"the outputs differ by {difference:g} of {largest:g}")


def _build_driver(
    folder: Path, model: onnx.ModelProto, inputs: Mapping[str, NDArray], outputs: Sequence[NDArray]
) -> None:
    """Compile the program that runs the model by ONNX Runtime's C API."""
    import onnxruntime

    library = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    input_names = [value.name for value in model.graph.input if value.name in inputs]
    output_names = [value.name for value in model.graph.output]
    arrays = [*(np.ascontiguousarray(inputs[name]) for name in input_names), *map(np.ascontiguousarray, outputs)]
    declarations, values = [], []
    for number, array in enumerate(arrays):
        (folder / f"array{number}.bin").write_bytes(array.tobytes())
        declarations.append(f"static _Alignas(64) unsigned char array{number}[{max(array.nbytes, 1)}];")
        shape, element = ", ".join(map(str, array.shape)) or "0", _ELEMENTS[array.dtype.name]
        values += [
            f"  const int64_t shape{number}[] = {{{shape}}};",
            f'  FILE *file{number} = fopen("array{number}.bin", "rb");',
            f"  if (!file{number}) return 1;",
            f"  if (fread(array{number}, 1, {array.nbytes}, file{number}) != {array.nbytes}) return 1;",
            "  CHECK(API(49, void *, void *, size_t, const int64_t *, size_t, int, void **)(",
            f"      memory, array{number}, {array.nbytes}, shape{number}, {array.ndim}, {element},",
            f"      &values[{number}]));",
        ]
    text = _DRIVER
    for key, value in {
        "arrays": "\n".join(declarations),
        "values": "\n".join(values),
        "count": str(len(arrays)),
        "inputs": ", ".join(f'"{name}"' for name in input_names) or "NULL",
        "outputs": ", ".join(f'"{name}"' for name in output_names),
        "num_inputs": str(len(input_names)),
        "num_outputs": str(len(output_names)),
    }.items():
        text = text.replace(f"@{key}@", value)
    (folder / "peer.c").write_text(text)
    # The library asks for itself by the name with the major version alone.
    (folder / ".".join(library.name.split(".")[:3])).symlink_to(library)
    subprocess.run(["gcc", "-O2", "-o", "peer", "peer.c", str(library), "-Wl,-rpath,$ORIGIN"], cwd=folder, check=True)
