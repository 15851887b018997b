"""Measure byoc; write the figures with a description of the machine.

    python -m benchmarks.run                        every figure
    python -m benchmarks.run import-time soak       some figures
    python -m benchmarks.run --rounds 5 -o out/figures.json
    python -m benchmarks.run scale-chain --sizes 1000 10000
    python -m benchmarks.run dnnl --models light_resnet50 lenet
    python -m benchmarks.run placements --tuned 60
    python -m benchmarks.run call-overhead --record calls    also benchmarks/results/<today>-calls.json

Contestants of a figure run interleaved in random order. Each line shows the median, half the distance between the
quartiles, and the best round. Run on an otherwise idle machine: figures are for comparing, never for passing.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.pairing import write_result
from benchmarks.recording import to_result
from benchmarks.results import RESULTS, to_json


class Figure(NamedTuple):
    """A measurement: function, number of rounds, description.

    Attributes:
        sizes: numbers of ops, or of calls, to be measured, if the figure depends on sizes; the function takes the sizes
            as a further argument.
        has_models: whether the function takes names of models as a further argument, or None for all models.
        has_tuning: whether the function takes, after the models, the seconds of a search for the fastest placement.
    """

    module: str
    function: str
    num_rounds: int
    doc: str
    sizes: tuple[int, ...] = ()
    has_models: bool = False
    has_tuning: bool = False


SIZES = (1_000, 10_000, 100_000)
FIGURES = {
    "import-time": Figure("benchmarks.import_time", "run", 15, "import byoc_core over import numpy"),
    "light": Figure("benchmarks.compile_time", "run", 3, "from_onnx and build of the light models"),
    "memory": Figure("benchmarks.memory", "run", 3, "peak memory of models over the stated need"),
    "memory-dnnl": Figure("benchmarks.memory", "run_dnnl", 3, "peak memory by dnnl alone over the stated need"),
    "call-overhead": Figure("benchmarks.call_overhead", "run", 31, "calls of tiny models, beside ONNX Runtime"),
    "changing-shapes": Figure("benchmarks.changing_shapes", "run", 31, "calls of tiny models with changing shapes"),
    "new-sizes": Figure(
        "benchmarks.new_sizes", "run", 50, "first calls of sizes over later calls, beside ONNX Runtime", has_models=True
    ),
    "decoding": Figure("benchmarks.decoding", "run", 5, "tokens per second of decoders, with states and without"),
    "decode-steps": Figure("benchmarks.decode_steps", "run", 21, "steps of decoders with states on both machines"),
    "decoding-memory": Figure(
        "benchmarks.decoding_memory", "run", 3, "peak memory of decoders with states, over the need"
    ),
    "entry-weights": Figure(
        "benchmarks.entry_weights", "run", 1, "bytes of weights of two entries, in artifacts and in memory"
    ),
    "instructions": Figure("benchmarks.instructions", "run", 3, "instructions of calls of tiny models, by callgrind"),
    "soak": Figure("benchmarks.soak", "run", 1, "memory after a million calls of all kinds", (1_000_000,)),
    "soak-dnnl": Figure("benchmarks.soak_dnnl", "run", 1, "memory after calls and loads by dnnl", (10_000,)),
    "host-ops": Figure("benchmarks.host_ops", "run", 11, "the cost of a host op beyond numpy's own calls"),
    "exported-c": Figure(
        "benchmarks.exported_c", "run", 11, "exported C, beside the VM, portable C and ONNX Runtime", has_models=True
    ),
    "profiles": Figure("benchmarks.profiles", "run", 11, "the cost of marks and of recorded calls", has_models=True),
    "models": Figure("benchmarks.models", "run", 7, "whole models by ccompiler, beside peers", has_models=True),
    "quantised": Figure("benchmarks.models", "run_quantised", 7, "quantised models, beside peers", has_models=True),
    "dnnl": Figure("benchmarks.models", "run_dnnl", 7, "whole models by dnnl, beside peers", has_models=True),
    "dnnl-layers": Figure("benchmarks.layers", "run", 5, "layers of models by dnnl, beside peers", has_models=True),
    "dnnl-layers-bfloat16": Figure("benchmarks.layers", "run_bfloat16", 5, "layers by dnnl, bfloat16", has_models=True),
    "cblas": Figure("benchmarks.cblas", "run", 9, "perceptrons and convolutions by cblas, beside backends and peers"),
    "dnnl-calls": Figure("benchmarks.dnnl_calls", "run", 15, "calls of oneDNN's regions, native and through ctypes"),
    "dnnl-quantised": Figure("benchmarks.models", "run_dnnl_quantised", 7, "quantised models by dnnl", has_models=True),
    "dnnl-bfloat16": Figure("benchmarks.models", "run_dnnl_bfloat16", 7, "models by dnnl in bfloat16", has_models=True),
    "threads": Figure("benchmarks.threads", "run", 15, "gains from threads, costs of other threads in the process"),
    "pauses": Figure("benchmarks.pauses", "run", 9, "calls after pauses, on one and two threads", has_models=True),
    "native-machine": Figure(
        "benchmarks.native_machine", "run", 21, "both machines of sessions on exported models", has_models=True
    ),
    "startup": Figure("benchmarks.startup", "run", 7, "from the start of a process to the first result, by stage"),
    "scale-chain": Figure("benchmarks.scale", "run_chain", 1, "stages of chains of many ops", SIZES),
    "scale-layers": Figure("benchmarks.scale", "run_layers", 1, "stages of wide layers of many ops", SIZES),
    "scale-random": Figure("benchmarks.scale", "run_random", 1, "stages of random graphs of many ops", SIZES),
    "partition-chain": Figure("benchmarks.partition", "run_chain", 1, "partition of chains of many ops", SIZES),
    "partition-layers": Figure("benchmarks.partition", "run_layers", 1, "partition of wide layers of many ops", SIZES),
    "partition-random": Figure("benchmarks.partition", "run_random", 1, "partition of random graphs", SIZES),
    "chains": Figure("benchmarks.row_kernels", "run_chains", 31, "elementwise chains, beside ONNX Runtime and PyTorch"),
    "row-ops": Figure("benchmarks.row_kernels", "run_row_ops", 31, "softmax, norm, reduction, transpose, beside peers"),
    "products": Figure("benchmarks.products", "run", 31, "matrix products, beside ONNX Runtime and PyTorch"),
    "quantised-weights": Figure(
        "benchmarks.quantised_weights", "run", 15, "products by weights of 4 bits, beside peers"
    ),
    "ops": Figure("benchmarks.ops", "run", 7, "single ops by cost and by each backend, beside ONNX Runtime", (), True),
    "random-ops": Figure("benchmarks.ops", "run_random", 5, "random ops by cost and by each backend", (150,)),
    "precision": Figure("benchmarks.precision", "run", 7, "bfloat16 beside float32 factors, time and errors"),
    "math-accuracy": Figure("benchmarks.math_accuracy", "run", 1, "errors of C functions, over all of float32", (1,)),
    "math-speed": Figure("benchmarks.math_speed", "run", 31, "C functions beside ONNX Runtime's"),
    "convolutions": Figure("benchmarks.convolutions", "run", 15, "convolutions beside ONNX Runtime and PyTorch"),
    "winograd": Figure("benchmarks.filters", "run_winograd", 15, "3x3 convolutions, beside ONNX Runtime and PyTorch"),
    "depthwise": Figure("benchmarks.filters", "run_depthwise", 15, "depthwise convolutions, beside peers"),
    "storage-plans": Figure(
        "benchmarks.storage_plans", "run", 1, "arenas over the peak, beside TFLite and TVM", (), True
    ),
    "placements": Figure(
        "benchmarks.placements", "run", 6, "placements of the zoo, beside single backends and peers", (), True, True
    ),
    "limits": Figure("benchmarks.limits", "run", 3, "distance of the zoo from the limits of the machine", (), True),
    "placement": Figure("benchmarks.placement", "run", 3, "placement by cost: distance from the optimum, time", SIZES),
    "placement-backends": Figure(
        "benchmarks.placement", "run_backends", 1, "partition by cost of many ops by ccompiler and dnnl", SIZES
    ),
}


def main() -> None:
    """Read the command line, measure, and write the result file."""
    listing = "\n".join(f"  {name:20} {figure.doc}" for name, figure in FIGURES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=__doc__,
        epilog=f"figures:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("figures", nargs="*", metavar="figure", help="figures to measure; all by default")
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="numbers of ops, or of calls (`soak`), instead of the defaults"
    )
    parser.add_argument("--models", nargs="+", help="models to measure instead of all, for figures of models")
    parser.add_argument(
        "--tuned", type=float, metavar="SECONDS", help="also search the fastest placement of each model (`placements`)"
    )
    parser.add_argument("--rounds", type=int, help="rounds of each figure instead of the defaults")
    parser.add_argument("-o", "--out", type=Path, default=Path("out/figures.json"), help="result file (%(default)s)")
    parser.add_argument("--record", metavar="SUBJECT", help="also write the figures' tables into benchmarks/results")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.figures if name not in FIGURES]
    if unknown:
        parser.error(f"no figure {unknown[0]!r}; expected one of {', '.join(FIGURES)}")
    results: dict[str, Any] = {}
    for name in arguments.figures or FIGURES:
        figure = FIGURES[name]
        print(f"{name}: {figure.doc}", flush=True)
        measure_figure = getattr(importlib.import_module(figure.module), figure.function)
        arguments_of_figure = (tuple(arguments.sizes or figure.sizes),) if figure.sizes else ()
        arguments_of_figure = (arguments.models,) if figure.has_models else arguments_of_figure
        arguments_of_figure += (arguments.tuned,) if figure.has_tuning else ()
        results[name] = measure_figure(arguments.rounds or figure.num_rounds, *arguments_of_figure)
    write_result(arguments.out, results)
    print(f"written to {arguments.out}")
    if arguments.record is not None:
        record(arguments.record, results)


def record(subject: str, results: Mapping[str, Any]) -> None:
    """Write the tables of figures as a dated result.

    Raises:
        SystemExit: a figure has no table with a unit, or the subject cannot be part of a file name.
    """
    try:
        result = to_result(subject, results)
    except ValueError as error:
        raise SystemExit(f"not recorded: {error}") from error
    path = RESULTS / result.file_name
    path.write_text(to_json(result), encoding="utf-8")
    print(f"recorded in {path}; now run python -m benchmarks.results")


if __name__ == "__main__":
    main()
