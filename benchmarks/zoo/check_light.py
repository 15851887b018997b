"""Run the light models of the onnx package, and compare the results with ONNX Runtime.

    python -m benchmarks.zoo.check_light
    python -m benchmarks.zoo.check_light light_vgg19 --backend ccompiler

Each network is built, saved, loaded, and compared before the final softmax, by the rule of ``benchmarks.zoo.accuracy``.
The outputs of two inputs must differ. Without ``--backend``, each network runs on the host alone and with ccompiler.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import byoc_core
from byoc_core.transform.evaluate import evaluate_function

from benchmarks.zoo.accuracy import Accuracy, judge, open_session, run_peer
from benchmarks.zoo.built_model import BACKENDS, build_model
from benchmarks.zoo.light import draw_inputs, list_light_models, load_light_model


@dataclass(frozen=True)
class Comparison:
    """A network on a backend, beside ONNX Runtime.

    Attributes:
        accuracy: the accuracy relative to float64.
        offloaded_share: the share of FLOPs taken by the backend.
        build_s: seconds of building, saving and loading.
        run_s: seconds of a run.
    """

    accuracy: Accuracy
    offloaded_share: float
    build_s: float
    run_s: float


def compare(name: str, backends: Sequence[str]) -> Iterable[tuple[str, Comparison]]:
    """Yield each backend's comparison of a light model; the reference results are computed once."""
    model = load_light_model(name)
    data = model.SerializeToString()
    module = byoc_core.from_onnx(data)
    feeds, other_feeds = draw_inputs(model, 1), draw_inputs(model, 2)
    session = open_session(data)
    peer, other = (run_peer(session, model_feeds)[:1] for model_feeds in (feeds, other_feeds))
    exact = evaluate_function(module, "main", list(feeds.values()), exact=True)[:1]
    for backend in backends:
        start = time.perf_counter()
        built = build_model(module, BACKENDS[backend])
        ready = time.perf_counter()
        results = built.run(feeds)[:1]
        seconds = time.perf_counter() - ready
        yield backend, Comparison(judge(results, peer, other, exact), built.offloaded_share, ready - start, seconds)


def main() -> None:
    """Read the command line, print a line for each model and backend, and fail if a result is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="model", help="names of models; all by default")
    parser.add_argument("--backend", choices=list(BACKENDS), help="both by default")
    arguments = parser.parse_args()
    wrong = []
    for name in arguments.models or list_light_models():
        for backend, found in compare(name, [arguments.backend] if arguments.backend else list(BACKENDS)):
            print(
                f"{name:20} {backend:9} {found.accuracy}; {found.offloaded_share:.1%} offloaded, "
                f"build {found.build_s:.2f} s, run {found.run_s:.2f} s",
                flush=True,
            )
            wrong += [] if found.accuracy.is_right else [f"{name} {backend}"]
    if wrong:
        raise SystemExit(f"FAILED: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
