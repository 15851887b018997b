"""CPU seconds and share of each stage, from ONNX bytes to a ready machine, as models grow tenfold.

A model is built twice: for the host alone, as a single region, and together with a backend taking every other kind of
op, as many regions.
"""

from __future__ import annotations

import gc
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import byoc_core
from byoc_core.authoring import GraphCodegen
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function

from benchmarks.pairing import Samples, paired_ratio
from benchmarks.synthetic import make_model

CLAIMED_OPS = frozenset({"add", "abs", "nn.relu", "tanh", "matmul"})
BUILD_STAGES = {"prepare": "passes", "partition": "partition", "compile": "codegen", "lower": "lower"}
COLLECTOR = "garbage collector"
STAGES = ("import", *BUILD_STAGES.values(), "save", "load", COLLECTOR)


class EveryOtherOp:
    """A backend taking some kinds of ops, and running these ops like the host."""

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        """Return the name ``everyother``."""
        return BackendInfo("everyother", dynamic_shapes=True)

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        """Accept the kinds of ops in :data:`TAKEN`."""
        return Support() if binding.op.name in CLAIMED_OPS else Rejection("op", "is left to the host")

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        """Return a module of graphs."""
        return GraphCodegen().compile(functions, context)


BACKENDS: dict[str, tuple[object, ...]] = {"host": (), "host and another": (EveryOtherOp(),)}


class _Clock:
    """CPU seconds by stage: a stage lasts until the next stage begins; garbage collection is a separate stage."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._stage = STAGES[0]
        self._start = time.process_time()

    def __enter__(self) -> Self:
        gc.callbacks.append(self._watch_collector)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._watch_collector)
        self._charge(self._stage)

    def begin(self, stage: str) -> None:
        self._charge(self._stage)
        self._stage = stage

    def _watch_collector(self, phase: str, info: Mapping[str, int]) -> None:
        self._charge(self._stage if phase == "start" else COLLECTOR)

    def _charge(self, stage: str) -> None:
        now = time.process_time()
        self.seconds[stage] += now - self._start
        self._start = now


def time_stages(data: bytes, backends: Sequence[object]) -> dict[str, float]:
    """Return the CPU seconds of each stage of a model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.byoc"
        gc.collect()  # garbage of another model is not charged
        with _Clock() as clock:
            module = byoc_core.from_onnx(data)
            executable = byoc_core.build(module, backends, progress=lambda stage: clock.begin(BUILD_STAGES[stage]))
            clock.begin("save")
            executable.save(path)
            clock.begin("load")
            byoc_core.VirtualMachine(byoc_core.load(path))
        return clock.seconds


def measure_growth(
    contestants: Mapping[int, Callable[[], dict[str, float]]], num_rounds: int
) -> Iterator[tuple[str, dict[int, Samples]]]:
    """Yield each stage, and the sum of the stages, with samples by size.

    The smallest size first runs once unmeasured.

    Args:
        contestants: functions by size; each returns the seconds of the same stages.
        num_rounds: the number of runs of each size.
    """
    values: dict[int, list[dict[str, float]]] = {size: [] for size in contestants}
    shuffler = random.Random(0)
    stages = contestants[min(contestants)]()  # imports and caches of the first use are not charged
    for _ in range(num_rounds):
        for size in shuffler.sample(list(contestants), len(contestants)):
            seconds = contestants[size]()
            values[size].append({**seconds, "all": sum(seconds.values())})
    for stage in (*stages, "all"):
        yield stage, {size: Samples(tuple(found[stage] for found in rounds)) for size, rounds in values.items()}


def run_chain(num_rounds: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the figures of chains."""
    return run("chain", sizes, num_rounds)


def run_layers(num_rounds: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the figures of wide layers."""
    return run("layers", sizes, num_rounds)


def run_random(num_rounds: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the figures of random graphs."""
    return run("random", sizes, num_rounds)


def run(kind: str, sizes: Sequence[int], num_rounds: int) -> dict[str, Any]:
    """Return seconds and share of each stage by size, and growth from size to size, for models of a kind."""
    models = {size: make_model(kind, size) for size in sorted(sizes)}
    figures: dict[str, Any] = {"unit": "s"}
    for name, backends in BACKENDS.items():
        contestants = {size: partial(time_stages, data, backends) for size, data in models.items()}
        figures[name] = tabulate_growth(name, contestants, num_rounds)
    return figures


def tabulate_growth(
    name: str, contestants: Mapping[int, Callable[[], dict[str, float]]], num_rounds: int
) -> dict[str, Any]:
    """Return, and print as a table, seconds, share and growth of each stage, from :func:`measure_growth`."""
    stages = dict(measure_growth(contestants, num_rounds))
    rows = {stage: _row(found, stages["all"]) for stage, found in stages.items()}
    _print_table(name, rows)
    return rows


def _row(found: dict[int, Samples], everything: dict[int, Samples]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    previous: Samples | None = None
    for size, samples in found.items():
        row[str(size)] = samples.to_json() | {"share": paired_ratio(samples, everything[size]).median}
        if previous is not None:
            row[str(size)]["growth"] = paired_ratio(samples, previous).median
        previous = samples
    return row


def _print_table(name: str, rows: dict[str, Any]) -> None:
    sizes = list(rows["all"])
    print(f"  {name + ':':18}" + "".join(f"{int(size):>14,} ops{'share':>8}{'growth':>8}" for size in sizes))
    for stage, row in rows.items():
        cells = (
            f"{cell['median']:>16.3f} s{cell['share']:>8.1%}"
            + (f"{cell['growth']:>8.1f}" if "growth" in cell else " " * 8)
            for cell in row.values()
        )
        print(f"  {stage:18}" + "".join(cells))
