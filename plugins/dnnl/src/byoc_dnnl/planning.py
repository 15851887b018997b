"""The plan of a function for the calls of a number of threads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from byoc_core.runtime.graph.document import GraphFunction

from byoc_dnnl.calls import Wiring
from byoc_dnnl.cost import is_small
from byoc_dnnl.creation import Creation, begin_creation
from byoc_dnnl.handles import Engine
from byoc_dnnl.plan import Plan
from byoc_dnnl.planner import Planner
from byoc_dnnl.precision import Precision
from byoc_dnnl.ranges_constants import ConstantRanges

__all__ = ["ThreadedPlan", "best_plan"]


class ThreadedPlan(NamedTuple):
    """A plan for a number of threads.

    Attributes:
        plan: the plan.
        num_threads: the number of threads of the plan: the number of a call, or 1.
        creation: the creation of the primitives, if begun.
    """

    plan: Plan
    num_threads: int
    creation: Creation | None = None


def best_plan(
    engine: Engine,
    number: int,
    function: GraphFunction,
    ranges: ConstantRanges,
    precision: Precision = "float32",
    schedules: Mapping[str, str] = MappingProxyType({}),
    *,
    creates: bool = False,
    wiring: Wiring | None = None,
) -> ThreadedPlan | None:
    """Return the plan for a number of threads; ``None`` if oneDNN lacks primitives for a part of the function.

    A small function gets a plan for one thread.

    Args:
        engine: the engine of the primitives.
        number: the number of threads of a call.
        function: the function, without symbols.
        ranges: known facts about the constants.
        precision: the precision of float32 computations.
        schedules: the names of schedules chosen for nodes, by the name of the result.
        creates: whether other threads create the primitives meanwhile, because a program follows.
        wiring: the wiring of the function, if known.
    """

    def attempt(num_threads: int, *, strict: bool) -> ThreadedPlan | None:
        creation = begin_creation(engine, num_threads) if creates else None
        found: Plan | str = ""
        try:
            found = Planner(
                engine,
                function,
                ranges,
                strict=strict,
                precision=precision,
                schedules=schedules,
                creation=creation,
                wiring=wiring,
            ).plan()
        finally:
            if creation is not None and isinstance(found, str):
                creation.close()
        return None if isinstance(found, str) else ThreadedPlan(found, num_threads, creation)

    def plan_for(num_threads: int) -> ThreadedPlan | None:
        with engine.threads(num_threads):
            return attempt(num_threads, strict=True) or attempt(num_threads, strict=False)

    found = plan_for(number)
    if found is None or number == 1 or not is_small(found.plan):
        return found
    return plan_for(1)
