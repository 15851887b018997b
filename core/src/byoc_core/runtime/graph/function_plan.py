"""A planned graph function: the nodes in order, and the execution on the values of a call.

:mod:`byoc_core.runtime.graph.plan` makes the plan. Any number of threads may run a plan: each call has a separate list
of values, and nothing else changes. The order of slots is: inputs, outputs passed by the caller, constants, then
results of nodes and arrays in the workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from byoc_core.errors import ByocError, ExecutionError
from byoc_core.kernels.numpy_kernel import run_quietly
from byoc_core.printable import to_printable
from byoc_core.runtime.graph.call_sizes import evaluate_attr
from byoc_core.runtime.graph.document import GraphAttr, GraphNode, attr_symbols
from byoc_core.runtime.graph.memory import PlacedArray, WorkspacePlan
from byoc_core.runtime.graph.steps import Step, node_failure, plain_step, scratch_step, writing_step
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.parts import is_recording, mark_part

__all__ = ["DType", "FunctionPlan", "KernelCallable", "PlannedNode", "Runner", "Sizes", "kernel_attrs"]

DType = np.dtype[Any]
KernelCallable = Callable[..., Any]
Sizes = Mapping[str, int]


class PlannedNode(NamedTuple):
    """A node, the kernel or body, and the slots of values (see :mod:`byoc_core.runtime.graph.steps`).

    ``is_core`` marks a kernel of the core; the kernel's caller must silence numpy's warnings. ``dead`` holds the slots
    emptied behind the node, ``out`` the slot of memory for the only result, ``scratch`` the slot of memory for the
    kernel itself.
    """

    node: GraphNode
    implementation: KernelCallable | FunctionPlan
    is_core: bool
    operands: tuple[int, ...]
    results: tuple[int, ...]
    dead: tuple[int, ...]
    out: int | None
    scratch: int | None
    broadcasts: bool

    @property
    def is_symbolic(self) -> bool:
        """Whether the node's step depends on the sizes of a call."""
        if isinstance(self.implementation, FunctionPlan):
            return self.implementation.is_symbolic
        return any(attr_symbols(value) for value in kernel_attrs(self.node).values())

    @property
    def is_quiet(self) -> bool:
        """Whether only the core's own kernels compute the node."""
        return self.implementation.runner.is_quiet if isinstance(self.implementation, FunctionPlan) else self.is_core

    def make_step(self, sizes: Sizes, *, is_quiet: bool) -> Step:
        """Return the step for the sizes of a call; with ``is_quiet``, the caller silences numpy's warnings."""
        call = self._bind(sizes, is_quiet=is_quiet)
        if self.scratch is not None:
            return scratch_step(call, self.operands, self.results[0], self.dead, self.out, self.scratch)
        if self.out is None:
            return plain_step(call, self.operands, self.results, self.dead)
        return writing_step(call, self.operands, self.results[0], self.dead, self.out, broadcasts=self.broadcasts)

    @property
    def part(self) -> tuple[str, str] | None:
        """The name of the node's part of a call and its ops; ``None`` if the steps of a body are the parts."""
        if isinstance(self.implementation, FunctionPlan):
            return None
        return to_printable(self.node.op), "\n".join(self.node.origins)

    def _bind(self, sizes: Sizes, *, is_quiet: bool) -> KernelCallable:
        implementation = self.implementation
        if isinstance(implementation, FunctionPlan):
            steps = implementation.make_steps(sizes, is_quiet=is_quiet)
            return partial(implementation.runner.run, steps)
        attrs = {name: evaluate_attr(value, sizes) for name, value in kernel_attrs(self.node).items()}
        if self.is_core and not is_quiet:
            return partial(run_quietly, implementation, **attrs)
        return partial(implementation, **attrs) if attrs else implementation


@dataclass(frozen=True, slots=True)
class Runner:
    """The part of a function plan needed to run the steps of a graph function.

    Attributes:
        where: the function, for errors.
        ops: the names of the nodes' ops, in order.
        parts: for each node the name and ops of its part of a recorded call (:mod:`byoc_core.runtime.parts`); ``None``
            if a body has parts of its own.
        tail: the values behind the caller's arrays in the list of values.
        stores: steps for copying the results into the caller's memory; none if the caller passes no memory for results.
        results: the slots of the returned results; none if there are stores.
        workspace_slots: the slots of the workspace's arrays.
        is_quiet: whether only the core's own kernels compute.
    """

    where: str
    ops: tuple[str, ...]
    parts: tuple[tuple[str, str] | None, ...]
    tail: tuple[Any, ...]
    stores: tuple[Step, ...]
    results: tuple[int, ...]
    workspace_slots: tuple[int, ...]
    is_quiet: bool

    @property
    def runners(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The functions for running without a workspace and with a workspace, for a caller with numpy's warnings on."""
        if self.is_quiet:
            return partial(run_quietly, self.run), partial(run_quietly, self.run_within)
        return self.run, self.run_within

    def run(self, steps: Sequence[Step], *arrays: NDArray) -> tuple[NDArray, ...]:
        """Run steps on the caller's arrays, and return the results not stored in the caller's memory.

        Raises:
            ExecutionError: a node failed, or a result is not of the declared type.
        """
        return self._run(steps, [*arrays, *self.tail])

    def run_within(
        self, steps: Sequence[Step], placed: Sequence[PlacedArray | None], *arrays: NDArray
    ) -> tuple[NDArray, ...]:
        """Do :meth:`run`, with values in the workspace, the last of the arrays.

        Args:
            steps: see :meth:`run`.
            placed: the locations of arrays in the workspace.
            arrays: the caller's arrays.
        """
        *passed, workspace = arrays
        values = [*passed, *self.tail]
        for slot, array in zip(self.workspace_slots, placed, strict=True):
            if array is not None:
                values[slot] = array.within(workspace)
        return self._run(steps, values)

    def _run(self, steps: Sequence[Step], values: list[Any]) -> tuple[NDArray, ...]:
        step = None
        try:
            if is_recording():
                for step, part in zip(steps, self.parts, strict=True):
                    step(values)
                    if part is not None:
                        mark_part(*part)
            else:
                for step in steps:
                    step(values)
        except Exception as error:
            raise self.failure(steps.index(step), error) from error
        for store in self.stores:
            store(values)
        return tuple([values[slot] for slot in self.results]) if self.results else ()

    def failure(self, index: int, error: Exception) -> ExecutionError:
        """Return the error for a node whose step failed, or could not be made."""
        part, op = self.parts[index], self.ops[index]
        # A part of several ops has a line for each; the last op makes the value.
        value = "" if part is None else part[1].rpartition("\n")[2].partition(" ")[2]
        return node_failure(f"{self.where}, node {index} (`{op}`{f', `{value}`' if value else ''})", error)


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """A prepared graph function: steps for the sizes of a call, and their runner.

    Attributes:
        nodes: the nodes, in order.
        runner: runs their steps.
        dtypes: the dtypes of the results, if certain.
        workspace: the plan of values in the memory passed by the caller behind the results.
        is_symbolic: whether steps depend on the sizes of a call.
    """

    nodes: tuple[PlannedNode, ...]
    runner: Runner
    dtypes: tuple[DType | None, ...]
    workspace: WorkspacePlan
    is_symbolic: bool

    def make_steps(self, sizes: Sizes, *, is_quiet: bool, previous: Sequence[Step] = ()) -> list[Step]:
        """Return a step for each node.

        Args:
            sizes: the sizes of the symbols.
            is_quiet: whether the caller silences numpy's warnings.
            previous: the steps for other sizes: steps independent of sizes are reused.
        """
        steps: list[Step] = []
        try:
            for node in self.nodes:
                is_reusable = previous and not node.is_symbolic
                steps.append(previous[len(steps)] if is_reusable else node.make_step(sizes, is_quiet=is_quiet))
        except ByocError as error:
            raise self.runner.failure(len(steps), error) from error
        return steps


def kernel_attrs(node: GraphNode) -> Mapping[str, GraphAttr]:
    """Return the attributes for a node's kernel: the attributes of a composite do not affect the computation."""
    return node.attrs if node.body is None else {}
