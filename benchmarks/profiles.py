"""The cost of profiles: calls with marks in the code, calls without marks, and recorded calls.

Generated C marks the end of each kernel. Ways: as compiled, the same C without the marks, and as compiled with a
recording machine. Beside the times stands the share of the time of a recorded call spent in regions, and the share of
the time of the regions spent in parts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import byoc_core
import numpy as np
from byoc_core.artifact import Executable
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import NDArray

from benchmarks.exported_c import load_named_model
from benchmarks.pairing import Samples, measure, paired_ratio
from benchmarks.tables import Table, show, table_to_json

__all__ = ["run"]

MODELS = ("add", "mlp_1", "lenet", "lstm", "light_squeezenet", "bert")
BACKEND = "ccompiler"
SAMPLE_S = 0.05
"""Approximate seconds of a sample."""

_MARKS = re.compile(r"^ *BYOC_MARK_PART\(.*\);\n", re.MULTILINE)


def run(num_rounds: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return microseconds of a call by variant and model, ratios to calls without marks, and shares of the times."""
    table: Table = {}
    shares: Table = {}
    for name in models or MODELS:
        model, inputs = load_named_model(name)
        executable = byoc_core.build(byoc_core.from_onnx(model), backends=[BACKEND])
        executable.require_offload(0.99)
        for variant, samples in _measure(executable, inputs, num_rounds).items():
            table.setdefault(variant, {})[name] = samples
        profiles = [byoc_core.profile(executable, inputs, num_threads=1, seconds=0.3) for _ in range(num_rounds)]
        regions = [sum(region.seconds for region in found.regions) for found in profiles]
        parts = [sum(part.seconds for region in found.regions for part in region.parts) for found in profiles]
        pairs = list(zip(regions, (found.seconds for found in profiles), strict=True))
        shares.setdefault("regions of a recorded call", {})[name] = Samples(tuple(a / b for a, b in pairs))
        pairs = list(zip(parts, regions, strict=True))
        shares.setdefault("parts of the regions", {})[name] = Samples(tuple(a / b for a, b in pairs))
    ratios = {
        f"{variant} over no marks": {name: paired_ratio(row[name], table["no marks"][name]) for name in row}
        for variant, row in table.items()
        if variant != "no marks"
    }
    show(f"microseconds of a call, medians of {num_rounds} rounds", table)
    show("time in units of calls without marks", ratios, ".4g")
    show("shares of the time", shares, ".4g")
    return {
        "unit": "us",
        "time": table_to_json(table),
        "ratios": table_to_json(ratios | {f"share: {variant}": row for variant, row in shares.items()}),
    }


def _measure(executable: Executable, inputs: Mapping[str, NDArray], num_rounds: int) -> dict[str, Samples]:
    unmarked = Executable(
        executable.program, [_without_marks(module) for module in executable.modules], executable.constants
    )
    machines = {
        "no marks": byoc_core.VirtualMachine(unmarked, num_threads=1),
        "marks": byoc_core.VirtualMachine(executable, num_threads=1),
    }
    arrays = [inputs[spec.name] for spec in executable.signature("main").inputs]
    results = {variant: machine["main"](*arrays) for variant, machine in machines.items()}
    contestants = {variant: _contestant(machine["main"], arrays) for variant, machine in machines.items()}
    samples = measure(contestants, num_rounds=num_rounds)
    # A machine that records switches the marks of the library on, for the rest of the process.
    machines["recorded"] = byoc_core.VirtualMachine(executable, num_threads=1, record=lambda _name, _record: None)
    results["recorded"] = machines["recorded"]["main"](*arrays)
    for variant, result in results.items():
        pairs_of_results = zip(_listed(result), _listed(results["no marks"]), strict=True)
        if not all(np.array_equal(left, right) for left, right in pairs_of_results):
            raise ValueError(f"{variant}: differs from the result without marks")
    contestants = {variant: _contestant(machines[variant]["main"], arrays) for variant in ("no marks", "recorded")}
    recorded = measure(contestants, num_rounds=num_rounds)
    scale = paired_ratio(recorded["recorded"], recorded["no marks"])
    pairs = zip(scale.values, samples["no marks"].values, strict=True)
    return {**samples, "recorded": Samples(tuple(ratio * seconds for ratio, seconds in pairs))}


def _without_marks(module: Any) -> CSourceModule:
    assert isinstance(module, CSourceModule)
    source, count = _MARKS.subn("", module.get_source())
    if not count:
        raise ValueError(f"{module!r} has no marks")
    return CSourceModule(
        source, module.signatures, constants=module.constants, options=module.options, traits=module.traits
    )


def _listed(result: NDArray | tuple[NDArray, ...]) -> tuple[NDArray, ...]:
    return result if isinstance(result, tuple) else (result,)


def _contestant(function: Callable[..., object], arrays: Sequence[NDArray]) -> Callable[[], float]:
    """Return a contestant running warm calls and returning the mean microseconds of a call, in time of this thread."""
    start = time.perf_counter()
    for _ in range(3):
        function(*arrays)
    num_calls = max(3, round(SAMPLE_S * 3 / (time.perf_counter() - start)))

    def contestant() -> float:
        begin = time.thread_time()
        for _ in range(num_calls):
            function(*arrays)
        return (time.thread_time() - begin) / num_calls * 1e6

    return contestant
