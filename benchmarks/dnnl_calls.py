"""Microseconds of a call of a oneDNN region: as a native call, and from Python primitive by primitive.

Chains of softmax over 16 elements show the cost of a call and of each further primitive. Beside these chains stand
three small layers on a row, and a whole network. Results are compared first, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import byoc_core
import numpy as np
from byoc_core.ir import FunctionBuilder, IRModule, tensor
from byoc_core.ops import default_ops
from byoc_core.runtime.module import NDArray

from benchmarks.pairing import Samples, measure, paired_ratio, time_call
from benchmarks.tables import Table, show, table_to_json
from benchmarks.zoo.light import SEED, draw_inputs, load_light_model

LONG = 17
SLOPE = "each further"
NETWORK = "light_squeezenet"
NUM_THREADS = (1, 2)
NUM_CALLS, NUM_CALLS_OF_NETWORK = 1000, 3
"""Calls in a sample."""


def run(num_rounds: int) -> dict[str, Any]:
    """Return microseconds per call of each model in both ways, the cost of a further primitive, and the ratios.

    Raises:
        ValueError: the ways have different results.
    """
    contestants: dict[str, Callable[[], float]] = {}
    for name, (module, x) in list_models().items():
        with patch("byoc_dnnl.native.extension", lambda: None):
            slow, expected = make_calls(module, x)
        fast, found = make_calls(module, x)
        if not all(map(np.array_equal, found, expected)):
            raise ValueError(f"{name}: the native call gives another result")
        num_calls = NUM_CALLS_OF_NETWORK if name == NETWORK else NUM_CALLS
        for variant, calls in (("native", fast), ("ctypes", slow)):
            for number, call in zip(NUM_THREADS, calls, strict=True):
                contestants[f"{name}/{variant}/{number}"] = time_call(call, num_calls=num_calls)
    table: Table = {}
    for key, samples in measure(contestants, num_rounds=num_rounds).items():
        name, variant, threads = key.split("/")
        table.setdefault(f"{variant}, threads: {threads}", {})[name] = Samples(tuple(v * 1e6 for v in samples.values))
    for row in table.values():
        pairs = zip(row[f"chain-{LONG}"].values, row["chain-1"].values, strict=True)
        row[SLOPE] = Samples(tuple((long - short) / (LONG - 1) for long, short in pairs))
    ratios = {
        f"threads: {number}": {
            name: paired_ratio(slow, table[f"native, threads: {number}"][name])
            for name, slow in table[f"ctypes, threads: {number}"].items()
        }
        for number in NUM_THREADS
    }
    show(f"microseconds of a call, medians of {num_rounds} rounds", table)
    show("times ctypes takes longer, within rounds", ratios)
    return {"unit": "us", "microseconds": table_to_json(table), "ratios": table_to_json(ratios)}


def list_models() -> Mapping[str, tuple[IRModule, NDArray]]:
    """Return the models by name, each with an input."""
    network = load_light_model(NETWORK)
    (image,) = draw_inputs(network, SEED).values()
    row = np.linspace(-1, 1, 16, dtype=np.float32)[None]
    return {
        "chain-1": (_chain(1), row),
        f"chain-{LONG}": (_chain(LONG), row),
        "layers-3": (_layers(16, 16, 16, 4), row),
        NETWORK: (byoc_core.from_onnx(network), image),
    }


def make_calls(module: IRModule, x: NDArray) -> tuple[list[Callable[[], object]], list[NDArray]]:
    """Return a call and the result for each number of threads, after a first call for making the primitives."""
    executable = byoc_core.build(module, backends=["dnnl"], fallback="error")
    functions = [byoc_core.VirtualMachine(executable, num_threads=number)["main"] for number in NUM_THREADS]
    calls: list[Callable[[], object]] = [partial(function, x) for function in functions]
    results = [call() for call in calls]
    return calls, [np.asarray(result[-1] if isinstance(result, tuple) else result) for result in results]


def _chain(length: int) -> IRModule:
    builder = FunctionBuilder("main", ops=default_ops())
    value: Any = builder.param("x", tensor((1, 16)))
    for _ in range(length):
        value = builder.emit("nn.softmax", value, axis=1)
    return IRModule({"main": builder.finish(value)}, builder.constants)


def _layers(*widths: int) -> IRModule:
    builder, rng = FunctionBuilder("main", ops=default_ops()), np.random.default_rng(SEED)
    value: Any = builder.param("x", tensor((1, widths[0])))
    for number, (before, after) in enumerate(pairwise(widths)):
        if number:
            value = builder.emit("nn.relu", value)
        weight = rng.standard_normal((after, before), np.float32) / np.float32(before**0.5)
        value = builder.emit("nn.dense", value, builder.const(weight))
        value = builder.emit("nn.bias_add", value, builder.const(rng.standard_normal(after, np.float32)), axis=1)
    return IRModule({"main": builder.finish(value)}, builder.constants)
