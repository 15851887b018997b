"""Arenas of buffers by byoc's planner, beside the planners of the literature, over the peak of live bytes.

The references are plain versions of published methods, without search indexes and in Python:

- ``tflite size``: greedy by size; each buffer goes to the smallest sufficient gap (Pisarchyk and Lee 2020, "Efficient
  Memory Management for Deep Neural Net Inference", algorithm 3, as used by TensorFlow Lite);
- ``tvm size`` and ``tvm conflict``: greedy by size and by the number of conflicts; each buffer goes above all
  placed conflicting buffers (TVM's unified static memory planner, RFC 0009);
- ``tvm climb``: 500 attempts, each with two neighbours of a buffer at the top swapped in the order; each buffer goes
  to the lowest sufficient gap (the same planner).

The buffers of a model are the values between the ops of the main function after the default passes, without inputs,
constants and results, at one alignment of 64 bytes. Random buffers are mostly short-lived, with sizes from all orders
of magnitude from 64 bytes to 1 MiB, as in networks with skip connections.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import byoc_core
import onnx
from byoc_core.ir import TensorType, Var
from byoc_core.runtime.plan_storage import Interval, peak_nbytes, plan, plan_once
from byoc_core.transform import Sequential, default_passes
from byoc_core.vm.program import nbytes_of

from benchmarks.models import load_model
from benchmarks.pairing import Samples
from benchmarks.tables import Table, show, table_to_json
from benchmarks.zoo.light import list_light_models

__all__ = ["buffers_of_model", "random_buffers", "run"]

ALIGNMENT = 64
MODELS = ("mobilenet_v2", "mobilenet_v3", "vit", "swin", "segformer", "bert", "lenet", "mlp_64", "quantised_convnet")
NUM_BUFFERS = (100, 300, 1_000, 3_000, 10_000)
NUM_ATTEMPTS = 500
MAX_CLIMB = 1_000
"""The number of buffers up to which the reference's hill climb runs: an attempt places all buffers again."""

Offsets = list[int]


def buffers_of_model(model: onnx.ModelProto) -> list[Interval]:
    """Return the buffers of a model of static sizes; live ranges count ops."""
    module = Sequential([*default_passes()])(byoc_core.from_onnx(model))
    (function,) = module.functions.values()
    first: dict[Var, int] = {}
    last: dict[Var, int] = {}
    for index, binding in enumerate(function.bindings):
        first |= dict.fromkeys(binding.results, index)
        last |= {value: index for value in (*binding.operands, *binding.results) if isinstance(value, Var)}
    buffers = []
    for value, start in first.items():
        if value not in function.results and isinstance(value.type, TensorType) and value.type.shape is not None:
            nbytes = nbytes_of(value.type.shape, value.type.dtype)
            if isinstance(nbytes, int):
                buffers.append(Interval(nbytes, start, last[value]))
    return buffers


def random_buffers(count: int, seed: int = 0) -> list[Interval]:
    """Return random buffers, one written at each point; one in seven lives for up to 80 points, the others for five."""
    rng = random.Random(seed)
    buffers = []
    for start in range(count):
        length = 1 + int(rng.expovariate(1 / 4)) if rng.random() < 0.85 else int(rng.random() * 80)
        buffers.append(Interval(int(2 ** (6 + 14 * rng.random())), start, start + length))
    return buffers


class Conflicts:
    """Buffers with aligned sizes, and for each buffer the other buffers live at the same time."""

    def __init__(self, buffers: Sequence[Interval]) -> None:
        self.sizes = [-(-buffer.nbytes // ALIGNMENT) * ALIGNMENT for buffer in buffers]
        self.of: list[list[int]] = [[] for _ in buffers]
        live: list[int] = []
        for number in sorted(range(len(buffers)), key=lambda n: buffers[n].start):
            live = [other for other in live if buffers[other].end >= buffers[number].start]
            for other in live:
                self.of[other].append(number)
                self.of[number].append(other)
            live.append(number)

    def placed(self, number: int, offsets: Sequence[int | None]) -> list[tuple[int, int]]:
        """Return the byte ranges of the placed buffers in conflict with a buffer, in ascending order."""
        ranges = ((offsets[other], self.sizes[other]) for other in self.of[number])
        return sorted((offset, offset + size) for offset, size in ranges if offset is not None)


def tflite_greedy_by_size(conflicts: Conflicts) -> Offsets:
    """Place the largest buffers first, each in the smallest sufficient gap."""
    return _place_all(conflicts, _by_size(conflicts), _smallest_gap)


def usmp_greedy_by_size(conflicts: Conflicts) -> Offsets:
    """Place the largest buffers first, each above all placed conflicting buffers."""
    return _place_all(conflicts, _by_size(conflicts), _above_all)


def usmp_greedy_by_conflicts(conflicts: Conflicts) -> Offsets:
    """Place the buffers with the most conflicts first, each above all placed conflicting buffers."""
    order = sorted(range(len(conflicts.sizes)), key=lambda n: (-len(conflicts.of[n]), -conflicts.sizes[n], n))
    return _place_all(conflicts, order, _above_all)


def usmp_hill_climb(conflicts: Conflicts) -> Offsets:
    """Return the best of 500 placements in the lowest gap, with neighbours of a buffer at the top swapped."""
    rng = random.Random(0)
    order = _by_size(conflicts)
    present = best = _place_all(conflicts, order, _lowest_gap)
    for attempt in range(1, NUM_ATTEMPTS):
        rank = {number: index for index, number in enumerate(order)}
        total = _arena(conflicts, present)
        number = rng.choice([n for n in order if present[n] + conflicts.sizes[n] == total])
        first_level = sorted(other for other in conflicts.of[number] if rank[other] < rank[number])
        second_level = sorted(
            {n for other in conflicts.of[number] for n in conflicts.of[other] if rank[n] < rank[other]}
        )
        if not first_level:
            continue
        left = rng.choice(first_level)
        right = rng.choice(second_level if second_level and rng.random() > 0.25 else first_level)
        swapped = order.copy()
        swapped[rank[left]], swapped[rank[right]] = right, left
        candidate = _place_all(conflicts, swapped, _lowest_gap)
        candidate_total = _arena(conflicts, candidate)
        # Larger arenas are kept with a falling probability, as in simulated annealing.
        if candidate_total < total or rng.random() < 0.5 * (candidate_total - total) / candidate_total / attempt:
            order, present = swapped, candidate
            if candidate_total < _arena(conflicts, best):
                best = candidate
    return best


def _by_size(conflicts: Conflicts) -> list[int]:
    return sorted(range(len(conflicts.sizes)), key=lambda n: (-conflicts.sizes[n], -len(conflicts.of[n]), n))


def _place_all(
    conflicts: Conflicts, order: Iterable[int], choose: Callable[[Sequence[tuple[int, int]], int], int]
) -> Offsets:
    offsets: list[int | None] = [None] * len(conflicts.sizes)
    for number in order:
        offsets[number] = choose(conflicts.placed(number, offsets), conflicts.sizes[number])
    return [offset or 0 for offset in offsets]


def _smallest_gap(ranges: Sequence[tuple[int, int]], size: int) -> int:
    best, best_gap, stop_so_far = None, 0, 0
    for start, stop in ranges:
        gap = start - stop_so_far
        if gap >= size and (best is None or gap < best_gap):
            best, best_gap = stop_so_far, gap
        stop_so_far = max(stop_so_far, stop)
    return stop_so_far if best is None else best


def _lowest_gap(ranges: Sequence[tuple[int, int]], size: int) -> int:
    offset = 0
    for start, stop in ranges:
        if start - offset >= size:
            break
        offset = max(offset, stop)
    return offset


def _above_all(ranges: Sequence[tuple[int, int]], size: int) -> int:
    return max((stop for _, stop in ranges), default=0)


def _arena(conflicts: Conflicts, offsets: Sequence[int]) -> int:
    return max((offset + size for offset, size in zip(offsets, conflicts.sizes, strict=True)), default=0)


REFERENCES: dict[str, Callable[[Conflicts], Offsets]] = {
    "tflite size": tflite_greedy_by_size,
    "tvm size": usmp_greedy_by_size,
    "tvm conflict": usmp_greedy_by_conflicts,
    "tvm climb": usmp_hill_climb,
}


def run(num_rounds: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return arenas over the lower bound and milliseconds of planning, by model and planner.

    Args:
        num_rounds: the rounds of the timing.
        models: names of models; ``None`` for all models and random buffers.
    """
    ratios: Table = {}
    times: Table = {}
    facts: dict[str, Any] = {}
    for name in models or (*list_light_models(), *MODELS):
        _measure(name, buffers_of_model(load_model(name)[0]), num_rounds, ratios, times, facts)
    for count in () if models else NUM_BUFFERS:
        _measure(f"random {count:,}", random_buffers(count), num_rounds, ratios, times, facts)
    show("arena over lower bound", ratios, ".4f")
    show("ms of planning", times)
    return {"unit": "ms", "ratios": table_to_json(ratios), "planning": table_to_json(times), "buffers": facts}


def _measure(
    name: str, buffers: Sequence[Interval], num_rounds: int, ratios: Table, times: Table, facts: dict[str, Any]
) -> None:
    """Add a row to each table."""
    lower_bound = peak_nbytes(buffers, ALIGNMENT)
    facts[name] = {"buffers": len(buffers), "lower bound": lower_bound}
    print(f"  {name}: {len(buffers):,} buffers, lower bound {lower_bound:,} bytes", flush=True)
    ratios[name], times[name] = {}, {}

    def add(planner: str, call: Callable[[], int]) -> None:
        durations = []
        for _ in range(num_rounds):
            start = time.perf_counter()
            arena = call()
            durations.append((time.perf_counter() - start) * 1e3)
        facts[name][planner] = arena
        ratios[name][planner] = Samples((arena / lower_bound if lower_bound else 1.0,))
        times[name][planner] = Samples(tuple(durations))

    def refer(reference: Callable[[Conflicts], Offsets]) -> Callable[[], int]:
        def call() -> int:
            conflicts = Conflicts(buffers)
            return _arena(conflicts, reference(conflicts))

        return call

    def padded(total: int) -> int:
        """Return the arena with the padding of the last buffer, as counted by the references."""
        return -(-total // ALIGNMENT) * ALIGNMENT

    add("plan", lambda: padded(plan(buffers, ALIGNMENT).total))
    add("plan_once", lambda: padded(plan_once(buffers, ALIGNMENT).total))
    for planner, reference in REFERENCES.items():
        if planner != "tvm climb" or len(buffers) <= MAX_CLIMB:
            add(planner, refer(reference))
