"""A graph function as it was planned: its nodes in order, and how they run on the values of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from byoc_core.errors import ByocError, ExecutionError
from byoc_core.kernels.numpy_kernel import run_quietly
from byoc_core.runtime.graph.call_sizes import evaluate_attr
from byoc_core.runtime.graph.document import GraphAttr, GraphNode, attr_symbols
from byoc_core.runtime.graph.memory import PlacedArray, WorkspacePlan
from byoc_core.runtime.graph.steps import Step, node_failure, plain_step, scratch_step, writing_step
from byoc_core.runtime.module import NDArray

__all__ = ["Computes", "DType", "FunctionPlan", "PlannedNode", "Runner", "Sizes", "kernel_attrs"]

DType = np.dtype[Any]
Computes = Callable[..., Any]
Sizes = Mapping[str, int]


class PlannedNode(NamedTuple):
    """One node, what computes it, and its places (see :mod:`byoc_core.runtime.graph.steps`).

    ``is_core`` where one of the core's own kernels does, which needs a caller that keeps numpy from warning.
    ``scratch`` is the place of memory for the kernel itself.
    """

    node: GraphNode
    computes: Computes | FunctionPlan
    is_core: bool
    operands: tuple[int, ...]
    results: tuple[int, ...]
    dead: tuple[int, ...]
    out: int | None
    scratch: int | None
    spreads: bool

    @property
    def is_symbolic(self) -> bool:
        """Whether its step depends on the sizes of a call."""
        if isinstance(self.computes, FunctionPlan):
            return self.computes.is_symbolic
        return any(attr_symbols(value) for value in kernel_attrs(self.node).values())

    @property
    def is_quiet(self) -> bool:
        """Whether nothing but the core's own kernels computes it."""
        return self.computes.runner.is_quiet if isinstance(self.computes, FunctionPlan) else self.is_core

    def make_step(self, sizes: Sizes, *, is_quiet: bool) -> Step:
        """Gives the step for the sizes of a call; ``is_quiet`` where its caller sees to it that numpy does not warn."""
        call = self._bind(sizes, is_quiet=is_quiet)
        if self.scratch is not None:
            return scratch_step(call, self.operands, self.results[0], self.dead, self.out, self.scratch)
        if self.out is None:
            return plain_step(call, self.operands, self.results, self.dead)
        return writing_step(call, self.operands, self.results[0], self.dead, self.out, spreads=self.spreads)

    def _bind(self, sizes: Sizes, *, is_quiet: bool) -> Computes:
        computes = self.computes
        if isinstance(computes, FunctionPlan):
            steps = computes.make_steps(sizes, is_quiet=is_quiet)
            return partial(computes.runner.run, steps)
        attrs = {name: evaluate_attr(value, sizes) for name, value in kernel_attrs(self.node).items()}
        if self.is_core and not is_quiet:
            return partial(run_quietly, computes, **attrs)
        return partial(computes, **attrs) if attrs else computes


@dataclass(frozen=True, slots=True)
class Runner:
    """How the steps of a graph function are run: all of its plan that is needed when they are made.

    Attributes:
        where: the function, as errors name it.
        ops: the names of the nodes' ops, in order.
        tail: what stands in the list of values behind what the caller passes.
        stores: steps that bring the results into the memory that the caller passes for them; none where it does not.
        results: the places of the results that a run gives; none where there are stores.
        places: the places of the workspace's arrays.
        is_quiet: whether nothing but the core's own kernels computes.
    """

    where: str
    ops: tuple[str, ...]
    tail: tuple[Any, ...]
    stores: tuple[Step, ...]
    results: tuple[int, ...]
    places: tuple[int, ...]
    is_quiet: bool

    @property
    def runners(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """What runs it without a workspace and with one, for a caller who lets numpy warn."""
        if self.is_quiet:
            return partial(run_quietly, self.run), partial(run_quietly, self.run_within)
        return self.run, self.run_within

    def run(self, steps: Sequence[Step], *arrays: NDArray) -> tuple[NDArray, ...]:
        """Runs steps on what the caller passes, and gives the results that it passes no memory for.

        Raises:
            ExecutionError: a node failed, or a result is not of the declared type.
        """
        return self._run(steps, [*arrays, *self.tail])

    def run_within(
        self, steps: Sequence[Step], placed: Sequence[PlacedArray | None], *arrays: NDArray
    ) -> tuple[NDArray, ...]:
        """Does :meth:`run`, with values in the workspace, which is the last of the arrays.

        Args:
            steps: see :meth:`run`.
            placed: where the workspace's arrays lie.
            arrays: what the caller passes.
        """
        *passed, workspace = arrays
        values = [*passed, *self.tail]
        for place, array in zip(self.places, placed, strict=True):
            if array is not None:
                values[place] = array.within(workspace)
        return self._run(steps, values)

    def _run(self, steps: Sequence[Step], values: list[Any]) -> tuple[NDArray, ...]:
        step = None
        try:
            for step in steps:
                step(values)
        except Exception as error:
            raise self.failure(steps.index(step), error) from error
        for store in self.stores:
            store(values)
        return tuple([values[place] for place in self.results]) if self.results else ()

    def failure(self, index: int, error: Exception) -> ExecutionError:
        """Gives the error of a node whose step failed, or could not be made."""
        return node_failure(f"{self.where}, node {index} (`{self.ops[index]}`)", error)


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """A graph function, prepared: steps for the sizes of a call, and how they are run.

    Attributes:
        nodes: the nodes, in order.
        runner: runs their steps.
        dtypes: the dtypes of the results, where they are certain.
        workspace: what of the values lies in memory that the caller passes behind its results.
        is_symbolic: whether steps depend on the sizes of a call.
    """

    nodes: tuple[PlannedNode, ...]
    runner: Runner
    dtypes: tuple[DType | None, ...]
    workspace: WorkspacePlan
    is_symbolic: bool

    def make_steps(self, sizes: Sizes, *, is_quiet: bool, known: Sequence[Step] = ()) -> list[Step]:
        """Gives a step for each node.

        Args:
            sizes: the sizes of the symbols.
            is_quiet: whether the caller sees to it that numpy does not warn.
            known: the steps for other sizes: those that do not depend on them are taken over.
        """
        steps: list[Step] = []
        try:
            for node in self.nodes:
                is_known = known and not node.is_symbolic
                steps.append(known[len(steps)] if is_known else node.make_step(sizes, is_quiet=is_quiet))
        except ByocError as error:
            raise self.runner.failure(len(steps), error) from error
        return steps


def kernel_attrs(node: GraphNode) -> Mapping[str, GraphAttr]:
    """Gives the attributes that a node's kernel takes: those of a composite say nothing to what computes it."""
    return node.attrs if node.body is None else {}
