"""Holds a backend to drawn graphs: each is called several times, and judged each time."""

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
    """Compile graphs as one module, and judge what those give of which the subject takes an op.

    Args:
        subject: the backend under test.
        graphs: by the name of their function.

    Raises:
        FailedError: results are wrong; says what the debugger finds.
        NotCoveredError: it takes no op of them.
    """
    store = ConstantStore()
    for graph in graphs.values():
        for array in graph.constants.values():
            store.add(array)
    attempt = subject.attempt(IRModule({name: graph.function for name, graph in graphs.items()}, store))
    built = {name: graph for name, graph in graphs.items() if attempt.regions[name] and name not in attempt.failures}
    if not built:
        raise NotCoveredError("it takes no op of these graphs")
    for name, graph in built.items():
        right: dict[int, set[tuple[bytes, ...]]] = {}
        # The first call again after another, of other sizes where they may change.
        for call in (*range(len(graph.calls)), 0):
            inputs = graph.calls[call]
            if text := _problem(subject, attempt, name, inputs, right.setdefault(call, set())):
                raise FailedError(f"{name}: {text}\n{_blame(subject, attempt.module, graph, inputs)}")
    return Outcome(text=f"{len(built)} graphs, {sum(len(graph.function.bindings) for graph in built.values())} ops")


def _problem(
    subject: Subject, attempt: Attempt, name: str, inputs: Sequence[NDArray], right: set[tuple[bytes, ...]]
) -> str:
    """Return what is wrong with one call; empty where nothing is.

    Args:
        subject: the backend under test.
        attempt: what was compiled.
        name: the graph.
        inputs: of the call.
        right: results of equal calls that were right, byte by byte; gets those of this one.
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
    """Return what the debugger says, region by region."""
    backends = [subject.name, *(handle.name for handle in subject.companions)]
    alone = IRModule({"main": replace(graph.function, name="main")}, module.constants)
    try:
        return str(debug_model(alone, backends, inputs, options=subject.options))
    except ByocError as error:
        return f"(the debugger says no more: {error})"
