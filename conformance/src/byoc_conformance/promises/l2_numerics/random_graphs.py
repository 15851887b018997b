"""Graphs of many ops give what their ops give, whatever is fused, reordered or kept in registers."""

from __future__ import annotations

from dataclasses import replace

from byoc_core import debug_model
from byoc_core.errors import ByocError
from byoc_core.ir import ConstantStore, IRModule

from byoc_conformance.drawing import DrawnGraph, canonical_trials, draw_graph, generator_of, graph_ops
from byoc_conformance.judging import judge
from byoc_conformance.outcome import FailedError, NotCoveredError, Outcome
from byoc_conformance.promise import Level, Promise
from byoc_conformance.subject import Subject, call_function

__all__ = ["PROMISES"]

_NUM_CASES = 8
_EXAMPLES_PER_GRAPH = 4


def _compute_graphs(subject: Subject, case: str) -> Outcome:
    favoured = _claimed_ops(subject)
    store = ConstantStore()
    graphs: dict[str, DrawnGraph] = {}
    for number in range(max(1, subject.spec.examples // _EXAMPLES_PER_GRAPH)):
        generator = generator_of(subject.spec.seed, "graph", case, number)
        is_dynamic = subject.info.dynamic_shapes and bool(generator.random() < 0.5)
        name = f"graph_{number}"
        graphs[name] = draw_graph(name, subject.ops, favoured, generator, is_dynamic=is_dynamic)
        for array in graphs[name].constants.values():
            store.add(array)
    attempt = subject.attempt(IRModule({name: graph.function for name, graph in graphs.items()}, store))
    built = {name: graph for name, graph in graphs.items() if attempt.regions[name] and name not in attempt.failures}
    if not built:
        raise NotCoveredError("it takes no op of these graphs")
    for name, graph in built.items():
        try:
            results = call_function(attempt.vm, name, graph.inputs)
        except ByocError as error:
            raise FailedError(f"{name}: {error}\n{_blame(subject, attempt.module, graph)}") from error
        verdict = judge(attempt.module, name, graph.inputs, results, subject.unit_roundoff)
        if not verdict.is_right:
            raise FailedError(f"{name}: {verdict.text}\n{_blame(subject, attempt.module, graph)}")
    return Outcome(text=f"{len(built)} graphs, {sum(len(graph.function.bindings) for graph in built.values())} ops")


def _claimed_ops(subject: Subject) -> frozenset[str]:
    """Gives the ops of graphs that the subject takes by themselves, in float32 and their first case."""
    functions = {}
    for number, op in enumerate(graph_ops()):
        trial = next(canonical_trials(subject.ops[op]))
        functions[f"op_{number}"] = trial.named(f"op_{number}").function(ConstantStore(), generator_of(0))
    attempt = subject.attempt(IRModule(functions))
    return frozenset(op for number, op in enumerate(graph_ops()) if attempt.is_claimed(f"op_{number}"))


def _blame(subject: Subject, module: IRModule, graph: DrawnGraph) -> str:
    """Gives what the debugger says, region by region."""
    backends = [subject.name, *(handle.name for handle in subject.companions)]
    alone = IRModule({"main": replace(graph.function, name="main")}, module.constants)
    try:
        return str(debug_model(alone, backends, graph.inputs, options=subject.options))
    except ByocError as error:
        return f"(the debugger says no more: {error})"


PROMISES = (
    Promise(
        Level.L2,
        "random-graphs",
        "computes random graphs within the error of rounding",
        _compute_graphs,
        cases=lambda: tuple(str(number) for number in range(_NUM_CASES)),
        deadline=240.0,
    ),
)
