"""Checks of a backend on drawn graphs: each is called several times, and judged each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt
from byoc_core import debug_model
from byoc_core.errors import ByocError
from byoc_core.ir import ConstantStore, IRModule

from byoc_conformance.drawing import DrawnGraph
from byoc_conformance.outcome import FailedError, NotCoveredError, Outcome
from byoc_conformance.subject import Attempt, Subject, call_unchanging

__all__ = ["hold_to_graphs"]

NDArray = npt.NDArray[Any]


def hold_to_graphs(subject: Subject, graphs: Mapping[str, DrawnGraph]) -> Outcome:
    """Compile graphs as a single module, and judge the results of graphs with an op claimed by the subject.

    Args:
        subject: the backend under test.
        graphs: by the name of their function.

    Raises:
        FailedError: results are wrong; with the findings of the debugger.
        NotCoveredError: the subject claims no op of the graphs.
    """
    store = ConstantStore()
    for graph in graphs.values():
        for array in graph.constants.values():
            store.add(array)
    attempt = subject.attempt(IRModule({name: graph.function for name, graph in graphs.items()}, store))
    built = {name: graph for name, graph in graphs.items() if attempt.regions[name] and name not in attempt.failures}
    if not built:
        raise NotCoveredError("the backend claims no op of these graphs")
    for name, graph in built.items():
        right: dict[int, set[tuple[bytes, ...]]] = {}
        # The first call is repeated after another, with other sizes if sizes are symbols.
        for call in (*range(len(graph.calls)), 0):
            inputs = graph.calls[call]
            if text := _problem(subject, attempt, name, inputs, right.setdefault(call, set())):
                raise FailedError(f"{name}: {text}\n{_blame(subject, attempt.module, graph, inputs)}")
    return Outcome(text=f"{len(built)} graphs, {sum(len(graph.function.bindings) for graph in built.values())} ops")


def _problem(
    subject: Subject, attempt: Attempt, name: str, inputs: Sequence[NDArray], right: set[tuple[bytes, ...]]
) -> str:
    """Return the fault of a call; empty if none.

    Args:
        subject: the backend under test.
        attempt: the compiled graphs.
        name: the graph.
        inputs: of the call.
        right: right results of equal calls, byte by byte; receives the results of this call if right.
    """
    try:
        results = call_unchanging(attempt.vm, name, inputs)
    except (ByocError, FailedError) as error:
        return str(error)
    found = tuple(array.tobytes() for array in results)
    if found in right:
        return ""
    text = subject.judge(attempt.module, name, inputs, results).text
    if not text:
        right.add(found)
    return text


def _blame(subject: Subject, module: IRModule, graph: DrawnGraph, inputs: Sequence[NDArray]) -> str:
    """Return the report of the debugger, region by region."""
    backends = [subject.name, *(handle.name for handle in subject.companions)]
    alone = IRModule({"main": replace(graph.function, name="main")}, module.constants)
    try:
        return str(debug_model(alone, backends, inputs, options=subject.options))
    except ByocError as error:
        return f"(the debugger failed: {error})"
