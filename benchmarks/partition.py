"""CPU seconds and share of each step of partition, as models grow tenfold.

Nothing is compiled. Each op is taken by a backend out of two or of four, some ops by a pattern, or stays on the host.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import byoc_core
from byoc_core.backend.hooks import BackendInfo, CodegenResult, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function, IRModule
from byoc_core.partitioning import (
    AnnotateSupported,
    FuseOpsByPattern,
    GreedyByOrder,
    MergeCompositeFunctions,
    PartitionRequest,
)
from byoc_core.partitioning.merging import merge
from byoc_core.pattern import CompositePattern, is_op, wildcard
from byoc_core.transform import Sequential, UniqueNames, pass_

from benchmarks.scale import COLLECTOR, tabulate_growth
from benchmarks.synthetic import make_model

STEPS: Mapping[str, tuple[tuple[Any, str], ...]] = {
    "patterns": ((FuseOpsByPattern, "__call__"),),
    "single ops": ((AnnotateSupported, "__call__"),),
    "grouping": ((merge, "group_claims"), (merge, "fuse_claims")),
    "regions": ((MergeCompositeFunctions, "__call__"),),
    "checker": ((merge, "check_partition"),),
    "verifier": ((pass_, "verify"),),
}
"""The functions of each step; a step does not include the steps called inside."""


@dataclass(frozen=True)
class Taker:
    """A backend taking some kinds of ops, and pairs of ops by a pattern."""

    name: str
    ops: frozenset[str]
    pairs: Sequence[tuple[str, str]] = ()

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        """Return the name."""
        return BackendInfo(self.name, dynamic_shapes=True)

    @hookimpl
    def byoc_patterns(self) -> list[CompositePattern]:
        """Return a pattern for each pair: the second op reads the first, an op of two operands."""
        return [
            CompositePattern(f"{self.name}.{index}", is_op(last)(is_op(first)(wildcard(), wildcard())))
            for index, (first, last) in enumerate(self.pairs)
        ]

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        """Accept the kinds of ops in ``ops``."""
        return Support() if binding.op.name in self.ops else Rejection("op", "is left to other backends")

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function]) -> CodegenResult:
        """Return no code: nothing here compiles."""
        return CodegenResult(None)


TWO = (
    Taker("one", frozenset({"add", "subtract", "matmul"}), (("add", "nn.relu"), ("subtract", "abs"))),
    Taker("two", frozenset({"multiply", "nn.relu", "tanh"}), (("multiply", "tanh"),)),
)
FOUR = (
    Taker("one", frozenset({"add", "nn.relu"}), (("add", "nn.relu"), ("subtract", "abs"))),
    Taker("two", frozenset({"multiply", "tanh"}), (("multiply", "tanh"),)),
    Taker("three", frozenset({"matmul", "negative"})),
    Taker("four", frozenset({"subtract", "abs"})),
)
BACKENDS = {"two backends": (TWO, False), "four backends": (FOUR, False), "four, sideways": (FOUR, True)}


class StepClock:
    """CPU seconds by step: a nested step stops the clock of the outer step until the nested step ends."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys((*STEPS, COLLECTOR, "rest"), 0.0)
        self._running = ["rest"]
        self._start = time.process_time()

    def begin(self, step: str) -> None:
        """Begin a step."""
        self._charge()
        self._running.append(step)

    def end(self) -> None:
        """End the current step."""
        self._charge()
        self._running.pop()

    def _charge(self) -> None:
        now = time.process_time()
        self.seconds[self._running[-1]] += now - self._start
        self._start = now

    def watch_collector(self, phase: str, info: Mapping[str, int]) -> None:
        """Charge garbage collections to a separate step: an entry of ``gc.callbacks``."""
        self.begin(COLLECTOR) if phase == "start" else self.end()

    def timed(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as a step."""

        @functools.wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            self.begin(step)
            try:
                return function(*arguments, **named)
            finally:
                self.end()

        return run


@contextmanager
def clock_steps() -> Iterator[StepClock]:
    """Time the functions of :data:`STEPS` inside the context."""
    with ExitStack() as stack:
        clock = StepClock()
        for step, functions in STEPS.items():
            for owner, name in functions:
                stack.enter_context(mock.patch.object(owner, name, clock.timed(step, getattr(owner, name))))
        gc.callbacks.append(clock.watch_collector)
        stack.callback(gc.callbacks.remove, clock.watch_collector)
        yield clock


def _claim(module: IRModule, request: PartitionRequest) -> IRModule:
    return GreedyByOrder()(module, request)


def time_steps(module: IRModule, backends: Sequence[object], sideways: bool) -> dict[str, float]:
    """Return the CPU seconds of each step of partitioning a module."""
    request = PartitionRequest([byoc_core.backends.get(backend) for backend in backends])
    with clock_steps() as clock:
        claim = functools.partial(_claim, request=request)
        Sequential([UniqueNames(), claim, MergeCompositeFunctions(sideways)], verify_input=False)(module)
        clock.end()
    return clock.seconds


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
    """Return seconds and share of each step by size, and growth from size to size, for models of a kind."""
    modules = {size: byoc_core.from_onnx(make_model(kind, size)) for size in sorted(sizes)}
    figures: dict[str, Any] = {"unit": "s"}
    for name, (backends, sideways) in BACKENDS.items():
        contestants = {
            size: functools.partial(time_steps, module, backends, sideways) for size, module in modules.items()
        }
        figures[name] = tabulate_growth(name, contestants, num_rounds)
    return figures
