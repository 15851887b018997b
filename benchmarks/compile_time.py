"""Seconds that ``from_onnx`` and ``build`` take: on light_squeezenet, and on chains of growing length."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import byoc_core
from byoc_core.ir import IRModule, tensor

from benchmarks.pairing import Samples, measure, paired_ratio, time_call
from benchmarks.zoo.light import load_light_model

CHAIN_LENGTHS = (100, 1_000, 10_000)


def run_light(num_rounds: int) -> dict[str, Any]:
    """Gives the seconds of importing light_squeezenet, and of building it for the host and for each compiler found."""
    data = load_light_model("light_squeezenet").SerializeToString()
    module = byoc_core.from_onnx(data)
    contestants = {
        "from_onnx": time_call(lambda: byoc_core.from_onnx(data)),
        "build on the host": time_call(lambda: byoc_core.build(module)),
    }
    for name in compiling_backends():
        contestants[f"build with {name}"] = time_uncached_build(module, name)
    samples = measure(contestants, num_rounds=num_rounds)
    for name, found in samples.items():
        print(f"  {name}: {found} s")
    return {"unit": "s", **{name: found.to_json() for name, found in samples.items()}}


def compiling_backends() -> list[str]:
    """Gives the installed backends, the host excepted, that can compile on this machine."""
    backends = byoc_core.backends
    return [name for name in backends.names() if name != "host" and backends.get(name).compile_status().ok]


def time_uncached_build(module: IRModule, backend: str) -> Callable[[], float]:
    """Gives a contestant that builds, links and loads with one backend, with an empty cache of compiled code."""

    def contestant() -> float:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["BYOC_CACHE_DIR"] = folder
            return time_call(lambda: byoc_core.VirtualMachine(byoc_core.build(module, backends=[backend])))()

    return contestant


def make_chain(length: int) -> IRModule:
    """Gives a function of ``length`` elementwise ops in a row over a (16, 16) tensor."""
    builder = byoc_core.FunctionBuilder("main")
    x = value = builder.param("x", tensor((16, 16)))
    for index in range(length):
        (value,) = builder.bind(("add", "multiply", "subtract")[index % 3], (value, x), {}).results
    return IRModule({"main": builder.finish(value)}, builder.constants)


def run_chains(num_rounds: int) -> dict[str, Any]:
    """Gives the build seconds of chains, and how they grow: 10 is linear for ten times the ops."""
    modules = {length: make_chain(length) for length in CHAIN_LENGTHS}
    contestants = {
        str(length): time_call(lambda module=module: byoc_core.build(module))  # type: ignore[misc]
        for length, module in modules.items()
    }
    samples = measure(contestants, num_rounds=num_rounds)
    figures: dict[str, Any] = {"unit": "s"}
    previous: Samples | None = None
    for name, found in samples.items():
        growth = paired_ratio(found, previous) if previous else None
        print(f"  {name} ops: {found} s" + (f", {growth.median:.1f} times the row above" if growth else ""))
        figures[name] = found.to_json() | ({"growth": growth.to_json()} if growth else {})
        previous = found
    return figures
