"""Measures byoc and writes the figures with the machine that gave them.

    python -m benchmarks.run                        every figure
    python -m benchmarks.run import-time soak       some of them
    python -m benchmarks.run --rounds 5 -o out/figures.json
    python -m benchmarks.run scale-chain --sizes 1000 10000
    python -m benchmarks.run dnnl --models light_resnet50 lenet
    python -m benchmarks.run call-overhead --record calls    also benchmarks/results/<today>-calls.json

Contestants of a figure run interleaved in random order; each line shows the median, half the distance between the
quartiles, and the best round. Run it on an otherwise idle machine: figures are for comparing, never for passing.
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
    """One measurement: where it lives, how often it runs, what it tells.

    Attributes:
        sizes: numbers of ops, or of calls, for which it is measured, where it depends on them; the function takes them
            as well.
        has_models: whether the function takes names of models as well, or none for all of them.
    """

    module: str
    function: str
    num_rounds: int
    doc: str
    sizes: tuple[int, ...] = ()
    has_models: bool = False


SIZES = (1_000, 10_000, 100_000)
FIGURES = {
    "import-time": Figure("benchmarks.import_time", "run", 15, "import byoc_core over import numpy"),
    "light": Figure("benchmarks.compile_time", "run", 3, "from_onnx and build of the light models"),
    "memory": Figure("benchmarks.memory", "run", 3, "peak memory of running models over what they need"),
    "memory-dnnl": Figure("benchmarks.memory", "run_dnnl", 3, "likewise, by dnnl alone"),
    "call-overhead": Figure("benchmarks.call_overhead", "run", 31, "calls of tiny models, beside ONNX Runtime"),
    "changing-shapes": Figure("benchmarks.changing_shapes", "run", 31, "such calls with other shapes each time"),
    "instructions": Figure("benchmarks.instructions", "run", 3, "instructions of such calls, by callgrind"),
    "soak": Figure("benchmarks.soak", "run", 1, "memory after a million calls of all kinds", (1_000_000,)),
    "soak-dnnl": Figure("benchmarks.soak_dnnl", "run", 1, "memory after calls and loads by dnnl", (10_000,)),
    "host-ops": Figure("benchmarks.host_ops", "run", 11, "what a host op costs over numpy's own calls"),
    "models": Figure("benchmarks.models", "run", 7, "whole models by ccompiler, beside its peers", has_models=True),
    "quantised": Figure("benchmarks.models", "run_quantised", 7, "quantised models, likewise", has_models=True),
    "dnnl": Figure("benchmarks.models", "run_dnnl", 7, "whole models by dnnl, likewise", has_models=True),
    "dnnl-layers": Figure("benchmarks.layers", "run", 5, "the layers of models by dnnl, likewise", has_models=True),
    "dnnl-layers-bfloat16": Figure("benchmarks.layers", "run_bfloat16", 5, "likewise in bfloat16", has_models=True),
    "dnnl-calls": Figure("benchmarks.dnnl_calls", "run", 15, "calls of oneDNN's regions, native and through ctypes"),
    "dnnl-quantised": Figure("benchmarks.models", "run_dnnl_quantised", 7, "quantised models by dnnl", has_models=True),
    "dnnl-bfloat16": Figure("benchmarks.models", "run_dnnl_bfloat16", 7, "by dnnl in bfloat16", has_models=True),
    "threads": Figure("benchmarks.threads", "run", 15, "what threads gain, and what others in the process cost"),
    "startup": Figure("benchmarks.startup", "run", 7, "from the start of a process to the first result, by stage"),
    "scale-chain": Figure("benchmarks.scale", "run_chain", 1, "stages of chains of many ops", SIZES),
    "scale-layers": Figure("benchmarks.scale", "run_layers", 1, "stages of wide layers of many ops", SIZES),
    "scale-random": Figure("benchmarks.scale", "run_random", 1, "stages of random graphs of many ops", SIZES),
    "partition-chain": Figure("benchmarks.partition", "run_chain", 1, "partition of chains of many ops", SIZES),
    "partition-layers": Figure("benchmarks.partition", "run_layers", 1, "partition of wide layers of many ops", SIZES),
    "partition-random": Figure("benchmarks.partition", "run_random", 1, "partition of random graphs", SIZES),
    "chains": Figure("benchmarks.row_kernels", "run_chains", 31, "elementwise chains, beside ONNX Runtime and PyTorch"),
    "row-ops": Figure("benchmarks.row_kernels", "run_row_ops", 31, "softmax, norms, reductions, transposes, likewise"),
    "products": Figure("benchmarks.products", "run", 31, "matrix products, beside ONNX Runtime and PyTorch"),
    "precision": Figure("benchmarks.precision", "run", 7, "bfloat16 factors beside float32 ones, time and errors"),
    "math-accuracy": Figure("benchmarks.math_accuracy", "run", 1, "errors of C functions, over all of float32", (1,)),
    "math-speed": Figure("benchmarks.math_speed", "run", 31, "C functions beside ONNX Runtime's"),
    "convolutions": Figure("benchmarks.convolutions", "run", 15, "convolutions beside ONNX Runtime and PyTorch"),
    "winograd": Figure("benchmarks.filters", "run_winograd", 15, "3x3 convolutions, beside ONNX Runtime and PyTorch"),
    "depthwise": Figure("benchmarks.filters", "run_depthwise", 15, "depthwise ones, beside ONNX Runtime and PyTorch"),
    "placement": Figure("benchmarks.placement", "run", 3, "placement by cost: nearness to the optimum, time", SIZES),
}


def main() -> None:
    """Reads the command line, measures, and writes the result file."""
    listing = "\n".join(f"  {name:20} {figure.doc}" for name, figure in FIGURES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=__doc__,
        epilog=f"figures:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("figures", nargs="*", metavar="figure", help="which to measure; all where none is given")
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="numbers of ops, or of calls of `soak`, instead of a figure's own"
    )
    parser.add_argument("--models", nargs="+", help="models of a figure of models instead of all of them")
    parser.add_argument("--rounds", type=int, help="rounds of each figure instead of its own number")
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
        given = (tuple(arguments.sizes or figure.sizes),) if figure.sizes else ()
        given = (arguments.models,) if figure.has_models else given
        results[name] = measure_figure(arguments.rounds or figure.num_rounds, *given)
    write_result(arguments.out, results)
    print(f"written to {arguments.out}")
    if arguments.record is not None:
        record(arguments.record, results)


def record(subject: str, results: Mapping[str, Any]) -> None:
    """Write the tables of figures as a dated result.

    Raises:
        SystemExit: a figure has no table with a unit, or the subject is no name of a file.
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
