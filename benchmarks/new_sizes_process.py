"""The process of an engine measured by ``benchmarks.new_sizes``: first and steady calls of a model at fresh sizes.

    python -m benchmarks.new_sizes_process MODEL ENGINE THREADS COUNT OUTPUTS

The process prints JSON: for each size the seconds of the first call and the median seconds of the following calls, by
the clock and as processor time of all threads. The outputs at the first sizes are written to OUTPUTS (``.npz``).
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import byoc_core
import numpy as np
import onnx
from byoc_core.runtime.module import NDArray

from benchmarks.calls import peer_session
from benchmarks.zoo.bert import BertConfig, build_bert, draw_bert_inputs
from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.resnet import SIZES as RESNET_SIZES
from benchmarks.zoo.resnet import build_resnet, draw_resnet_inputs

__all__ = ["ENGINES", "HOST", "MODELS", "PEER", "main"]

HOST, PEER = "host", "onnxruntime"
ENGINES: Mapping[str, Sequence[str]] = {
    "ccompiler": ["ccompiler"],
    "dnnl": ["dnnl"],
    "dnnl + ccompiler": ["dnnl", "ccompiler"],
    HOST: [],
}
"""Backends of byoc's engines, by name."""

NUM_STEADY, NUM_COMPARED, SEED = 5, 3, 0
"""Calls of a size after the first call, sizes with compared outputs, and the seed of the order of sizes."""

Sizes = dict[str, int]


class DynamicModel(NamedTuple):
    """A model with symbolic sizes.

    Attributes:
        build: returns the model.
        draw: returns inputs for sizes.
        warm: sizes of two calls before the measurement, outside of the measured sizes.
        list_sizes: returns fresh sizes to choose from.
    """

    build: Callable[[], onnx.ModelProto]
    draw: Callable[[Sizes], Mapping[str, NDArray]]
    warm: Sizes
    list_sizes: Callable[[], list[Sizes]]


_ENCODER = BertConfig(num_layers=6, hidden=384, num_heads=12, inner=1536, vocabulary=1000, positions=512)
_RESNET = RESNET_SIZES["real"]


def _encoder(list_sizes: Callable[[], list[Sizes]]) -> DynamicModel:
    return DynamicModel(
        lambda: build_bert(_ENCODER, STYLES["exported17"]),
        lambda sizes: draw_bert_inputs(_ENCODER, sizes, SEED),
        {"batch": 1, "sequence": 8},
        list_sizes,
    )


def _resnet(list_sizes: Callable[[], list[Sizes]]) -> DynamicModel:
    return DynamicModel(
        lambda: build_resnet(_RESNET, STYLES["exported17"]),
        lambda sizes: draw_resnet_inputs(_RESNET, sizes, SEED),
        {"batch": 1, "height": 50, "width": 50},
        list_sizes,
    )


def _images() -> list[Sizes]:
    """Return images of 64 to 224 pixels; no two have the same height or width."""
    heights, widths = (random.Random(seed).sample(range(64, 225), 161) for seed in (1, 2))
    return [{"batch": 1, "height": height, "width": width} for height, width in zip(heights, widths, strict=True)]


MODELS: Mapping[str, DynamicModel] = {
    "encoder, sequence": _encoder(lambda: [{"batch": 1, "sequence": length} for length in range(16, 129)]),
    "encoder, batch": _encoder(
        lambda: [{"batch": batch, "sequence": length} for batch in range(1, 9) for length in range(16, 129)]
    ),
    "resnet, batch": _resnet(lambda: [{"batch": batch, "height": 64, "width": 64} for batch in range(1, 65)]),
    "resnet, image": _resnet(_images),
}
"""An encoder of 6 layers (hidden size 384) and ResNet-18, by name and changing size."""


def _runner(model: onnx.ModelProto, engine: str, num_threads: int) -> Callable[[Mapping[str, NDArray]], list[NDArray]]:
    if engine == PEER:
        session = peer_session(model.SerializeToString(), num_threads=num_threads)
        return lambda feeds: list(session.run(None, feeds))
    executable = byoc_core.build(byoc_core.from_onnx(model), list(ENGINES[engine]))
    machine = byoc_core.VirtualMachine(executable, num_threads=num_threads)

    def run(feeds: Mapping[str, NDArray]) -> list[NDArray]:
        results = machine.run("main", feeds)
        return [results] if isinstance(results, np.ndarray) else list(results)

    return run


def _measure(run: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a call: by the clock, and as processor time of all threads."""
    clock, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    """Read the command line, measure, and print."""
    name, engine, num_threads, count, path = sys.argv[1:]
    model = MODELS[name]
    run = _runner(model.build(), engine, int(num_threads))
    for _ in range(2):
        run(model.draw(model.warm))
    fresh_sizes = random.Random(SEED).sample(model.list_sizes(), int(count))
    found: dict[str, list[float]] = {
        f"{kind} {unit}": [] for kind in ("first", "steady") for unit in ("wall", "processor")
    }
    outputs: dict[str, Any] = {}
    for number, sizes in enumerate(fresh_sizes):
        feeds = model.draw(sizes)
        first = _measure(lambda feeds=feeds: run(feeds))  # type: ignore[misc]
        later = [_measure(lambda feeds=feeds: run(feeds)) for _ in range(NUM_STEADY)]  # type: ignore[misc]
        for index, unit in enumerate(("wall", "processor")):
            found[f"first {unit}"].append(first[index])
            found[f"steady {unit}"].append(statistics.median(call[index] for call in later))
        if number < NUM_COMPARED:
            outputs |= {f"{number} {index}": array for index, array in enumerate(run(feeds))}
    np.savez(path, **outputs)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
