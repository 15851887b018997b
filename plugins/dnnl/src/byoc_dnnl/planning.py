"""The plan of a function for the calls of a number of threads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from byoc_core.runtime.graph.document import GraphFunction

from byoc_dnnl.cost import is_small
from byoc_dnnl.handles import Engine
from byoc_dnnl.plan import Plan
from byoc_dnnl.planner import Planner
from byoc_dnnl.precision import Precision
from byoc_dnnl.ranges_constants import ConstantRanges

__all__ = ["ThreadedPlan", "best_plan"]

ThreadedPlan = tuple[Plan, int]
"""A plan and the number of threads of the plan: the number of a call, or 1."""


def best_plan(
    engine: Engine,
    number: int,
    function: GraphFunction,
    ranges: ConstantRanges,
    precision: Precision = "float32",
    schedules: Mapping[str, str] = MappingProxyType({}),
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
    """

    def plan_for(num_threads: int) -> Plan | None:
        with engine.threads(num_threads):
            planners = (
                Planner(engine, function, ranges, strict=strict, precision=precision, schedules=schedules)
                for strict in (True, False)
            )
            return next((plan for planner in planners if not isinstance(plan := planner.plan(), str)), None)

    plan = plan_for(number)
    if plan is None or number == 1 or not is_small(plan):
        return None if plan is None else (plan, number)
    serial = plan_for(1)
    return None if serial is None else (serial, 1)
