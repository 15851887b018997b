"""Graphs of many ops give what their ops give, whatever is fused, reordered or kept in registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt
from byoc_core import debug_model
from byoc_core.errors import ByocError
from byoc_core.ir import ConstantStore, IRModule

from byoc_conformance.drawing import DrawnGraph, draw_graph, generator_of, graph_ops
from byoc_conformance.outcome import FailedError, NotCoveredError, Outcome
from byoc_conformance.promise import Level, Promise
from byoc_conformance.subject import Attempt, Subject, call_unchanging

__all__ = ["PROMISES"]

NDArray = npt.NDArray[Any]

_EXAMPLES_PER_GRAPH = 20


def _compute_graphs(subject: Subject, op: str) -> Outcome:
    graphs = {f"graph_{number}": graph for number, graph in enumerate(_draw(subject, op))}
    store = ConstantStore()
    for graph in graphs.values():
        for array in graph.constants.values():
            store.add(array)
    attempt = subject.attempt(IRModule({name: graph.function for name, graph in graphs.items()}, store))
    built = {name: graph for name, graph in graphs.items() if attempt.regions[name] and name not in attempt.failures}
    if not built:
        raise NotCoveredError("it takes no op of these graphs")
    for name, graph in built.items():
        # The first call again after another, of other sizes where they may change.
        for inputs in (*graph.calls, graph.calls[0]):
            if text := _problem(subject, attempt, name, inputs):
                raise FailedError(f"{name}: {text}\n{_blame(subject, attempt.module, graph, inputs)}")
    return Outcome(text=f"{len(built)} graphs, {sum(len(graph.function.bindings) for graph in built.values())} ops")


def _draw(subject: Subject, op: str) -> Iterator[DrawnGraph]:
    """Yield the graphs of a case: which they are depends on nothing that the backend claims."""
    for number in range(max(1, subject.spec.examples // _EXAMPLES_PER_GRAPH)):
        generator = generator_of(subject.spec.seed, "graph", op, number)
        is_dynamic = bool(generator.random() < 0.5) and subject.info.dynamic_shapes
        yield draw_graph(f"graph_{number}", subject.ops, op, generator, is_dynamic=is_dynamic)


def _problem(subject: Subject, attempt: Attempt, name: str, inputs: Sequence[NDArray]) -> str:
    """Return what is wrong with one call; empty where nothing is."""
    try:
        results = call_unchanging(attempt.vm, name, inputs)
    except (ByocError, FailedError) as error:
        return str(error)
    return subject.judge(attempt.module, name, inputs, results).text


def _blame(subject: Subject, module: IRModule, graph: DrawnGraph, inputs: Sequence[NDArray]) -> str:
    """Return what the debugger says, region by region."""
    backends = [subject.name, *(handle.name for handle in subject.companions)]
    alone = IRModule({"main": replace(graph.function, name="main")}, module.constants)
    try:
        return str(debug_model(alone, backends, inputs, options=subject.options))
    except ByocError as error:
        return f"(the debugger says no more: {error})"


PROMISES = (
    Promise(
        Level.L2,
        "random-graphs",
        "computes random graphs within the error of rounding, call after call, in sizes that change",
        _compute_graphs,
        cases=graph_ops,
        deadline=240.0,
    ),
)
