"""Checks of cost tables: errors of estimates, and placements by cost beside each backend alone."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import byoc_core
from byoc_core.errors import ByocError
from byoc_core.ir import IRModule
from byoc_core.partitioning import ByCost
from byoc_core.reporting.shares import items_of
from byoc_core.runtime.threads import set_num_threads
from byoc_core.tuning.op_times import MeasuredOp
from byoc_core.tuning.race import race

from benchmarks.cost_measurement import MODEL_S, load_sized, measure_module

__all__ = ["check", "choices"]


def check(models: Sequence[str], backends: Sequence[str]) -> None:
    """Print the estimates of the backends over the measured times: quartiles by op, and sums of models."""
    for backend in backends:
        handle = byoc_core.backends.get(backend)
        ratios: dict[str, list[tuple[float, float]]] = {}
        for name in models:
            model, inputs = load_sized(name)
            module = byoc_core.from_onnx(model)
            try:
                ops, _ = measure_module(module, inputs, backend, MODEL_S, scale=True)
            except ByocError as error:
                print(f"  {name}: left out: {str(error)[:200]}")
                continue
            total, expected_total = 0.0, 0.0
            for op in ops:
                expected = _expected(handle, module, op)
                if expected is None:
                    continue
                total += op.seconds or 0.0
                expected_total += expected
                ratios.setdefault(op.binding.op.name, []).append((expected, op.seconds or 0.0))
            print(
                f"  {backend}, {name}: {total * 1e3:.3f} ms measured, "
                f"{expected_total / max(total, 1e-12):.2f} times as much expected",
                flush=True,
            )
        print(f"  {backend}: expected over measured seconds by op; quartiles over ops with kernels, then the sums")
        for op_name, pairs in sorted(ratios.items(), key=lambda item: -sum(pair[1] for pair in item[1])):
            alone = sorted(math.log(expected / seconds) for expected, seconds in pairs if seconds and expected)
            sums = [sum(pair[index] for pair in pairs) for index in (0, 1)]
            quartiles = " ".join(f"{math.exp(alone[len(alone) * q // 4]):6.2f}" for q in (1, 2, 3)) if alone else ""
            print(
                f"    {op_name:24} {len(pairs):5} ops, {len(alone):5} with kernels {quartiles:21} "
                f"{sums[0] * 1e6:10.1f} us against {sums[1] * 1e6:10.1f} us"
            )


def _expected(handle: Any, module: IRModule, op: MeasuredOp) -> float | None:
    from byoc_core.partitioning.op_function import as_function

    function = as_function(op.binding, handle.name, op.neighbours._asdict())
    answer = handle.estimate(function, handle.context(module, {}))
    return None if answer is None else float(answer.seconds)


def choices(models: Sequence[str], backends: Sequence[str], num_rounds: int = 7) -> None:
    """Print the placements by cost against each backend alone, measured in turn."""
    set_num_threads(1)
    for name in models:
        model, inputs = load_sized(name)
        module = byoc_core.from_onnx(model)
        runners: dict[str, Any] = {}
        takers: dict[str, Mapping[str, int]] = {}
        for label, listed, policy in (
            *((backend, [backend], None) for backend in backends),
            ("by cost", list(backends), ByCost()),
        ):
            try:
                executable = byoc_core.build(module, listed, policy=policy)
            except ByocError as error:
                print(f"  {name}: {label} fails: {str(error)[:200]}")
                continue
            takers[label] = Counter(str(row["outcome"]) for row in items_of(executable.report_data.get("ops")))
            call = byoc_core.VirtualMachine(executable, num_threads=1)["main"]
            runners[label] = partial(call, *(inputs[param.name] for param in call.params))
        if "by cost" not in runners or len(runners) < 2:
            continue
        samples = race(runners, num_rounds)
        medians = {label: statistics.median(values) for label, values in samples.items()}
        best = min((label for label in medians if label != "by cost"), key=medians.__getitem__)
        ratio = statistics.median(a / b for a, b in zip(samples["by cost"], samples[best], strict=True))
        times = ", ".join(f"{label} {seconds * 1e3:.3f} ms" for label, seconds in medians.items())
        ops_text = ", ".join(f"{count} {label}" for label, count in sorted(takers["by cost"].items()))
        print(f"  {name}: {times}; by cost over {best}: {ratio:.2f} ({ops_text})", flush=True)
