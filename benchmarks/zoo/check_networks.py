"""Run the zoo's own networks, and compare the results with ONNX Runtime.

    python -m benchmarks.zoo.check_networks
    python -m benchmarks.zoo.check_networks gpt2 llama --size real --backend ccompiler --style modern

Each model is imported, built once, saved, loaded, and run with several sizes of each dynamic dimension, by the rule of
``benchmarks.zoo.accuracy``. Decoders also write some tokens one by one with a cache. A line for each model and backend
shows the worst run.
"""

from __future__ import annotations

import argparse
import time

from byoc_core.errors import ByocError

from benchmarks.zoo.accuracy import Accuracy
from benchmarks.zoo.built_model import BACKENDS
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.network_check import ModelCheck
from benchmarks.zoo.networks import NETWORKS


def check_model(check: ModelCheck, backend: str) -> tuple[str, bool]:
    """Return the text to print for a model on a backend, and whether the results are right."""
    try:
        module = check.module
        start = time.perf_counter()
        built = check.build(BACKENDS[backend])
        seconds = time.perf_counter() - start
        found = list(check.compare_sizes(built).items())
        decoding = check.compare_decoding(built)
    except (ByocError, ValueError) as error:
        return f"FAILED: {error}", False
    runs = [*found, *([] if decoding is None else [("decoding", decoding)])]
    where, worst = max(runs, key=lambda run: _badness(run[1]))
    built_text = f"{len(module['main'].bindings)} ops built in {seconds:.1f} s, {built.offloaded_share:.0%} offloaded"
    return f"{built_text}, {len(runs)} runs; worst at {where}: {worst}", worst.is_right


def _badness(accuracy: Accuracy) -> tuple[bool, float]:
    return not accuracy.is_right, accuracy.excess


def main() -> None:
    """Read the command line, print a line for each model and backend, and fail if a result is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="model", help=f"of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--size", choices=("tiny", "real"), default="tiny", help="size of the networks (%(default)s)")
    parser.add_argument("--backend", choices=list(BACKENDS), help="both by default")
    parser.add_argument("--style", choices=list(STYLES), help="spelling of the networks; all by default")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.models if name not in NETWORKS]
    if unknown:
        parser.error(f"no model {unknown[0]!r}; expected one of {', '.join(NETWORKS)}")
    wrong = []
    for name in arguments.models or NETWORKS:
        for style in [arguments.style] if arguments.style else STYLES:
            check = ModelCheck(name, arguments.size, style)
            for backend in [arguments.backend] if arguments.backend else BACKENDS:
                text, is_right = check_model(check, backend)
                print(f"{name:13} {style:10} {backend:9} {text}", flush=True)
                wrong += [] if is_right else [f"{name} {style} {backend}"]
    if wrong:
        raise SystemExit(f"FAILED: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
