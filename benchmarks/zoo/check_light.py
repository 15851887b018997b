"""Runs the light models of the onnx package on the numpy host, and compares them with ONNX Runtime.

    python -m benchmarks.zoo.check_light
    python -m benchmarks.zoo.check_light light_vgg19

Each network is compared before its final softmax, on two inputs whose outputs must differ. The oracle is the same
network in float64: an error may be four times ONNX Runtime's own, or that of one rounding where this is more.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import byoc_core
import numpy as np
import onnxruntime
from byoc_core.transform.evaluate import evaluate_function

from benchmarks.zoo.light import Array, draw_inputs, list_light_models, load_light_model, relative_difference

ALLOWED_FACTOR = 4.0
LEAST_DIFFERENCE = 1e-2


@dataclass(frozen=True)
class Comparison:
    """One network beside ONNX Runtime.

    Attributes:
        error: largest error against float64, over the largest magnitude of the output.
        peer_error: the same of ONNX Runtime.
        distance: largest difference of the two results, over the largest magnitude.
        difference: how much the outputs of two inputs differ, in standard deviations of the first.
        import_s: seconds of ``from_onnx``.
        build_s: seconds of ``build``.
        run_s: seconds of one run.
    """

    error: float
    peer_error: float
    distance: float
    difference: float
    import_s: float
    build_s: float
    run_s: float

    @property
    def is_right(self) -> bool:
        """Whether the network depends on its input, and its error is of the size of rounding."""
        limit = ALLOWED_FACTOR * max(self.peer_error, float(np.finfo(np.float32).eps))
        return self.difference > LEAST_DIFFERENCE and self.error <= limit


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
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # some of the models hold weights that no node uses
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    peer, other = (np.asarray(session.run(None, given)[0]) for given in (feeds, others))
    exact = evaluate_function(module, "main", list(feeds.values()), exact=True)[0]
    size = float(np.abs(exact).max())
    return Comparison(
        error=float(np.abs(result - exact).max()) / size,
        peer_error=float(np.abs(peer - exact).max()) / size,
        distance=float(np.abs(result - peer).max()) / size,
        difference=relative_difference(peer, other),
        import_s=imported - start,
        build_s=built - imported,
        run_s=finished - started,
    )


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
            f"{name:20} error {found.error:.1e} (ONNX Runtime {found.peer_error:.1e}), apart {found.distance:.1e}, "
            f"inputs differ {found.difference:.2f}; from_onnx {found.import_s:.2f} s, build {found.build_s:.2f} s, "
            f"run {found.run_s:.2f} s{'' if found.is_right else '  WRONG'}",
            flush=True,
        )
        wrong += [] if found.is_right else [name]
    if wrong:
        raise SystemExit(f"FAILED: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
