"""The kernels of generated C as reports: ops, loops, estimates, text."""

from __future__ import annotations

from dataclasses import replace

from byoc_core.authoring.c.estimate import estimate
from byoc_core.authoring.c.loop_tree import describe_loops
from byoc_core.authoring.c.statements import Dispatch
from byoc_core.authoring.c.traversal import statements_in
from byoc_core.authoring.csource_scope import FunctionScope, KernelRecord
from byoc_core.backend.hooks import KernelReport, SharedLoop
from byoc_core.ir import COMPOSITE, Binding

__all__ = ["report_kernels"]


def report_kernels(scope: FunctionScope) -> list[KernelReport]:
    """Return a report of each kernel of a function, in the order in which they stand in the source."""
    return [_report(scope.symbol, record) for record in scope.records]


def _report(symbol: str, record: KernelRecord) -> KernelReport:
    facts = record.facts
    report = KernelReport(
        record.name,
        symbol,
        record.text,
        tuple(map(_op_of, facts.bindings)),
        tuple(result.name for binding in facts.bindings for result in binding.results),
        shared_loops=tuple(SharedLoop(loop.count, loop.grain, loop.work_ps) for loop in facts.loops),
    )
    if facts.function is None:
        return report
    dispatches = [item for item in statements_in(facts.function.body) if isinstance(item, Dispatch)]
    work = estimate(facts.function)
    return replace(
        report,
        loops=describe_loops(facts.function),
        shared_loops=tuple(SharedLoop(item.count, item.grain, item.work_ps) for item in dispatches),
        flops=work.flops,
        nbytes=work.nbytes,
        ps=work.ps,
    )


def _op_of(binding: Binding) -> str:
    """Return the name of an op, of a composite the name of its pattern."""
    return str(binding.attrs["name"]) if binding.op is COMPOSITE else binding.op.name
