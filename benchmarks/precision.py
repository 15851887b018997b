"""The option ``precision`` of ccompiler: products of bfloat16 factors beside float32 factors, time and errors.

Both run in byoc, in the same process, in turn. Errors are the largest error over the largest output: of products
against float64, of models against ONNX Runtime.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import byoc_core
import numpy as np
import onnx
from byoc_core.runtime.module import NDArray

from benchmarks.calls import NO_PEER, has_peer, peer_session
from benchmarks.models import load_model
from benchmarks.pairing import measure, paired_ratio
from benchmarks.products import MODELS as PRODUCTS

__all__ = ["run"]

PRECISIONS = ("float32", "bfloat16")
THREADS = (1, 2)
PRODUCT_NAMES = ("128x768x3072", "512x512x512", "512x512x512, both inputs", "3136x64x576", "3136x576x64", "1x4096x4096")
MODEL_NAMES = ("light_resnet50", "bert")
SAMPLE_S = 5e-3
"""Approximate seconds of a sample."""


def run(num_rounds: int) -> dict[str, Any]:
    """Return seconds and errors by precision and threads, and the ratios of float32 to bfloat16."""
    if not has_peer():
        print(f"  {NO_PEER}")
    figures = {}
    for name in PRODUCT_NAMES:
        product = PRODUCTS[name]
        operands = product.draw()
        inputs = {"x": operands["x"]} if product.is_constant else operands
        exact = operands["x"].astype(np.float64) @ operands["w"].astype(np.float64)
        figures[name] = _compare(
            name, onnx.load_from_string(product.to_onnx(operands["w"])), inputs, [exact], num_rounds
        )
    for name in MODEL_NAMES:
        model, inputs = load_model(name)
        expected = peer_session(model.SerializeToString(), num_threads=1).run(None, inputs) if has_peer() else None
        figures[name] = _compare(name, model, inputs, expected, num_rounds)
    return figures


def _compare(
    name: str,
    model: onnx.ModelProto,
    inputs: Mapping[str, NDArray],
    expected: list[NDArray] | None,
    num_rounds: int,
) -> dict[str, Any]:
    calls, errors = {}, {}
    for precision in PRECISIONS:
        options = {"ccompiler": {"precision": precision}}
        executable = byoc_core.build(byoc_core.from_onnx(model), ["ccompiler"], options=options)
        for num_threads in THREADS:
            machine = byoc_core.VirtualMachine(executable, num_threads=num_threads)
            results = machine.run("main", inputs)
            calls[precision, num_threads] = _contestant(machine.bind("main", inputs))
        errors[precision] = None if expected is None else _error(results, expected)
    seconds = measure({f"{p}, {t} threads": call for (p, t), call in calls.items()}, num_rounds=num_rounds)
    ratios = {t: paired_ratio(*(seconds[f"{p}, {t} threads"] for p in PRECISIONS)) for t in THREADS}
    summary = ", ".join(
        f"{t} threads {seconds[f'bfloat16, {t} threads'].median * 1e6:.0f} us, {ratio.median:.2f} times as fast"
        for t, ratio in ratios.items()
    )
    print(f"  {name:26} {summary}; errors {errors}", flush=True)
    return {
        "seconds": {contestant: samples.to_json() for contestant, samples in seconds.items()},
        "float32 / bfloat16": {t: ratio.to_json() for t, ratio in ratios.items()},
        "relative error": errors,
    }


def _error(results: Any, expected: list[NDArray]) -> float:
    found = results if isinstance(results, (tuple, list)) else [results]
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(found, expected, strict=True)]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def _contestant(call: Callable[[], object]) -> Callable[[], float]:
    """Return a contestant for the mean seconds of a call."""
    call()
    start = time.perf_counter()
    call()
    num_calls = max(1, round(SAMPLE_S / (time.perf_counter() - start)))

    def contestant() -> float:
        begin = time.perf_counter()
        for _ in range(num_calls):
            call()
        return (time.perf_counter() - begin) / num_calls

    return contestant
