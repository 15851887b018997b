"""The kernels of generated C as reports: ops, loops, estimates, text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from byoc_core.authoring.c.estimate import estimate
from byoc_core.authoring.c.loop_tree import describe_loops
from byoc_core.authoring.c.statements import Dispatch
from byoc_core.authoring.c.statements import Function as CFunction
from byoc_core.authoring.c.traversal import statements_in
from byoc_core.authoring.csource_parallel import ParallelLoop
from byoc_core.backend.hooks import KernelReport, SharedLoop
from byoc_core.ir import COMPOSITE, Binding

__all__ = ["KernelFacts", "KernelRecord", "report_kernels"]


class KernelFacts(NamedTuple):
    """Facts of a kernel for reports.

    Attributes:
        bindings: the ops computed by the kernel.
        function: the statements printed as the kernel's text; ``None`` for a kernel of text only.
        loops: the loops of a text that threads may share.
        schedule: a dataclass with the schedule choices of the kernel as fields; ``None`` without choices.
    """

    bindings: tuple[Binding, ...] = ()
    function: CFunction | None = None
    loops: tuple[ParallelLoop, ...] = ()
    schedule: object = None


@dataclass(slots=True)
class KernelRecord:
    """A kernel of a source.

    Attributes:
        name: the kernel's name in C.
        text: the definition.
        facts: the kernel's facts for reports.
        prototype: the declaration, if other translation units may call the kernel; then the definition begins with
            ``BYOC_KERNEL`` in the place of ``static``.
        reused_for: further ops computed by the kernel, for other calls.
        comments: lines of C for these ops, placed before the definition.
    """

    name: str
    text: str
    facts: KernelFacts
    prototype: str = ""
    reused_for: list[Binding] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)

    @property
    def definition(self) -> str:
        """The comments and the text."""
        return "\n".join([*self.comments, self.text])


def report_kernels(symbol: str, records: Iterable[KernelRecord]) -> list[KernelReport]:
    """Return a report of each kernel of a function exported under a symbol."""
    return [_report(symbol, record) for record in records]


def _report(symbol: str, record: KernelRecord) -> KernelReport:
    facts, bindings = record.facts, (*record.facts.bindings, *record.reused_for)
    report = KernelReport(
        record.name,
        symbol,
        record.definition,
        tuple(map(_op_of, bindings)),
        tuple(result.name for binding in bindings for result in binding.results),
        shared_loops=tuple(SharedLoop(loop.count, loop.grain, loop.work_ps) for loop in facts.loops),
        schedule={} if facts.schedule is None else _choices_of(facts.schedule),
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


def _choices_of(schedule: Any) -> dict[str, str]:
    """Return the fields of a schedule as text: yes or no for a flag, none for ``None``."""
    values = {item.name: getattr(schedule, item.name) for item in fields(schedule)}
    words = {None: "none", True: "yes", False: "no"}
    return {
        name: words[value] if value is None or isinstance(value, bool) else str(value) for name, value in values.items()
    }


def _op_of(binding: Binding) -> str:
    """Return the name of an op; for a composite, the name of the pattern."""
    return str(binding.attrs["name"]) if binding.op is COMPOSITE else binding.op.name
