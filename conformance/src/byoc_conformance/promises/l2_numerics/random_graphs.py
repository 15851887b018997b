"""Graphs of many ops, compared with their single ops, despite fusion, reordering or values kept in registers."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_conformance.drawing import DrawnGraph, draw_graph, generator_of, graph_ops
from byoc_conformance.outcome import Outcome
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l2_numerics.judged_graphs import hold_to_graphs
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_EXAMPLES_PER_GRAPH = 20


def _compute_graphs(subject: Subject, op: str) -> Outcome:
    return hold_to_graphs(subject, {f"graph_{number}": graph for number, graph in enumerate(_draw(subject, op))})


def _draw(subject: Subject, op: str) -> Iterator[DrawnGraph]:
    """Yield the graphs of a case: the choice depends on nothing claimed by the backend."""
    for number in range(max(1, subject.spec.examples // _EXAMPLES_PER_GRAPH)):
        generator = generator_of(subject.spec.seed, "graph", op, number)
        is_dynamic = bool(generator.random() < 0.5) and subject.info.dynamic_shapes
        yield draw_graph(f"graph_{number}", subject.ops, op, generator, is_dynamic=is_dynamic)


PROMISES = (
    Promise(
        Level.L2,
        "random-graphs",
        "computes random graphs within rounding error, in repeated calls with changing sizes",
        _compute_graphs,
        cases=graph_ops,
        deadline=240.0,
    ),
)
