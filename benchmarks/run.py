"""Measures byoc and writes the figures with the machine that gave them.

    python -m benchmarks.run                        every figure
    python -m benchmarks.run import-time chains     some of them
    python -m benchmarks.run --rounds 5 -o out/figures.json

Contestants of a figure run interleaved in random order; each line shows the median, half the distance between the
quartiles, and the best round. Run it on an otherwise idle machine: figures are for comparing, never for passing.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.pairing import write_result


class Figure(NamedTuple):
    """One measurement: where it lives, how often it runs, what it tells."""

    module: str
    function: str
    num_rounds: int
    doc: str


FIGURES = {
    "import-time": Figure("benchmarks.import_time", "run", 15, "import byoc_core over import numpy"),
    "light": Figure("benchmarks.compile_time", "run_light", 5, "from_onnx and build of light_squeezenet"),
    "vm": Figure("benchmarks.vm_overhead", "run", 11, "what the VM adds to a call of a one-region module"),
    "chains": Figure("benchmarks.compile_time", "run_chains", 3, "build of chains of 100, 1,000 and 10,000 ops"),
}


def main() -> None:
    """Reads the command line, measures, and writes the result file."""
    listing = "\n".join(f"  {name:12} {figure.doc}" for name, figure in FIGURES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=__doc__,
        epilog=f"figures:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("figures", nargs="*", metavar="figure", help="which to measure; all where none is given")
    parser.add_argument("--rounds", type=int, help="rounds of each figure instead of its own number")
    parser.add_argument("-o", "--out", type=Path, default=Path("out/figures.json"), help="result file (%(default)s)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.figures if name not in FIGURES]
    if unknown:
        parser.error(f"no figure {unknown[0]!r}; expected one of {', '.join(FIGURES)}")
    results: dict[str, Any] = {}
    for name in arguments.figures or FIGURES:
        figure = FIGURES[name]
        print(f"{name}: {figure.doc}", flush=True)
        measure_figure = getattr(importlib.import_module(figure.module), figure.function)
        results[name] = measure_figure(arguments.rounds or figure.num_rounds)
    write_result(arguments.out, results)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
