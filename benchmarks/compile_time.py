"""Seconds of ``from_onnx`` and ``build`` for the light models and for transformers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import byoc_core
from byoc_core.ir import IRModule

from benchmarks.models import load_model
from benchmarks.pairing import measure, time_call
from benchmarks.zoo.light import list_light_models

TRANSFORMERS = ("bert", "segformer")


def run(num_rounds: int) -> dict[str, Any]:
    """Return the seconds of importing and of building each model."""
    return {name: run_model(name, num_rounds) for name in (*list_light_models(), *TRANSFORMERS)}


def run_model(name: str, num_rounds: int) -> dict[str, Any]:
    """Return the seconds of importing a model, and of building this model for the host and for each compiler found."""
    data = load_model(name)[0].SerializeToString()
    module = byoc_core.from_onnx(data)
    contestants = {
        "from_onnx": time_call(lambda: byoc_core.from_onnx(data)),
        "build on the host": time_call(lambda: byoc_core.build(module, [])),
    }
    for backend in compiling_backends():
        contestants[f"build with {backend}"] = time_uncached_build(module, backend)
    samples = measure(contestants, num_rounds=num_rounds)
    for phase, found in samples.items():
        print(f"  {name}, {phase}: {found} s", flush=True)
    return {"unit": "s", **{phase: found.to_json() for phase, found in samples.items()}}


def compiling_backends() -> list[str]:
    """Return the installed backends able to compile on this machine, except the host."""
    backends = byoc_core.backends
    return [name for name in backends.names() if name != "host" and backends.get(name).compile_status().ok]


def time_uncached_build(module: IRModule, backend: str) -> Callable[[], float]:
    """Return a contestant building, linking and loading with a backend and an empty cache of compiled code."""

    def contestant() -> float:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["BYOC_CACHE_DIR"] = folder
            return time_call(lambda: byoc_core.VirtualMachine(byoc_core.build(module, backends=[backend])))()

    return contestant
