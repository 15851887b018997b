"""Runs the light models of the onnx package on the numpy host, and compares them with ONNX Runtime.

    python -m benchmarks.zoo.check_light
    python -m benchmarks.zoo.check_light light_vgg19

Each network is compared before its final softmax, on two inputs whose outputs must differ, by the rule of
``benchmarks.zoo.accuracy``.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import byoc_core
import numpy as np
from byoc_core.transform.evaluate import evaluate_function

from benchmarks.zoo.accuracy import Accuracy, Array, judge, open_session, run_peer
from benchmarks.zoo.light import draw_inputs, list_light_models, load_light_model


@dataclass(frozen=True)
class Comparison:
    """One network beside ONNX Runtime.

    Attributes:
        accuracy: how near it is to float64.
        import_s: seconds of ``from_onnx``.
        build_s: seconds of ``build``.
        run_s: seconds of one run.
    """

    accuracy: Accuracy
    import_s: float
    build_s: float
    run_s: float


def compare(name: str) -> Comparison:
    """Gives a light model's errors and times."""
    model = load_light_model(name)
    data = model.SerializeToString()
    start = time.perf_counter()
    module = byoc_core.from_onnx(data)
    imported = time.perf_counter()
    executable = byoc_core.build(module)
    built = time.perf_counter()
    machine = byoc_core.VirtualMachine(executable)
    feeds, others = draw_inputs(model, 1), draw_inputs(model, 2)
    started = time.perf_counter()
    result = _first(machine["main"](*feeds.values()))
    finished = time.perf_counter()
    session = open_session(data)
    peer, other = (run_peer(session, given)[:1] for given in (feeds, others))
    exact = evaluate_function(module, "main", list(feeds.values()), exact=True)[:1]
    return Comparison(judge([result], peer, other, exact), imported - start, built - imported, finished - started)


def _first(results: Array | tuple[Array, ...]) -> Array:
    return np.asarray(results[0] if isinstance(results, tuple | list) else results)


def main() -> None:
    """Reads the command line, prints one line for each model, and fails if one is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="model", help="names of models; all by default")
    wrong = []
    for name in parser.parse_args().models or list_light_models():
        found = compare(name)
        print(
            f"{name:20} {found.accuracy}; from_onnx {found.import_s:.2f} s, build {found.build_s:.2f} s, "
            f"run {found.run_s:.2f} s",
            flush=True,
        )
        wrong += [] if found.accuracy.is_right else [name]
    if wrong:
        raise SystemExit(f"FAILED: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
