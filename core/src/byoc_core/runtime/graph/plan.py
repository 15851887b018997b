"""Preparation of a graph function for kernels, once: slots of values, and memory for results.

The values of a call are in a list: the caller's arrays, the constants, then slots for the results of nodes. A slot is
reused, or emptied, right after the last use of the value; this releases the value.

Results may overwrite a dying operand only if no other value shares the operand's memory. Unless a kernel declares
``fresh`` results, results may be views of operands. A false declaration overwrites values still in use, without an
error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from byoc_core.dims import Dim, bound_symbols
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ByocError
from byoc_core.kernels.numpy_kernel import KernelForm, NumpyKernel
from byoc_core.kernels.plugin_kernel import PluginKernel
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.graph.document import GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.graph.function_plan import DType, FunctionPlan, KernelCallable, PlannedNode, Runner, kernel_attrs
from byoc_core.runtime.graph.memory import PlacedArray, Storages, WorkspacePlan
from byoc_core.runtime.graph.plugin_kernels import check_results
from byoc_core.runtime.graph.steps import Step, store_step
from byoc_core.runtime.module import NDArray, Signature

__all__ = ["implement"]

FindKernel = Callable[[GraphNode], KernelCallable | None]
"""Returns the kernel of a node, or ``None`` to compute the node by its body.

The kernel is ``computes(*operands, **attributes)``; the kernel of a composite takes no attributes.
"""
_Prepared = tuple[list[Step], tuple[PlacedArray | None, ...]]
"""The steps for the sizes of a call, and the locations of arrays in the workspace."""
_MAX_CACHED_SHAPES = 8
"""The number of sets of shapes with kept steps and locations: calls alternating between a few sets reuse them."""
_numpy_dtype = lru_cache(maxsize=None)(to_numpy)


class Implementation(NamedTuple):
    """The implementation of a function, and the bytes of the optional workspace behind the outputs."""

    call: Callable[..., tuple[NDArray, ...]]
    workspace_nbytes: Dim


def implement(function: GraphFunction, constants: Mapping[str, NDArray], find: FindKernel) -> Implementation:
    """Return ``impl(*inputs, *outputs[, workspace])`` for a function, or ``impl(*inputs)`` that returns results.

    Args:
        function: the function.
        constants: read-only arrays by digest.
        find: returns the kernel of a node; called once for each node.
    """
    signature = function.signature
    plan = _Planner(
        function,
        constants,
        find,
        f"graph function `{function.name}`",
        [_numpy_dtype(spec.dtype) for spec in function.inputs],
        takes_outputs=not signature.new_symbols,
    ).plan()
    make = _implement_symbolic if plan.is_symbolic else _implement_static
    return Implementation(make(plan, signature), plan.workspace.nbytes)


def _implement_static(plan: FunctionPlan, signature: Signature) -> Callable[..., Any]:
    """Return the implementation of a plan with the same steps and locations in all calls."""
    runner = plan.runner  # the plan itself is no longer needed
    run, run_within = runner.runners
    steps = plan.make_steps({}, is_quiet=runner.is_quiet)
    if not runner.workspace_slots:
        return partial(run, steps)
    placed = plan.workspace.place_arrays({})
    num_arrays = len(signature.inputs) + len(signature.outputs)

    def implementation(*arrays: NDArray) -> Any:
        return run_within(steps, placed, *arrays) if len(arrays) > num_arrays else run(steps, *arrays)

    return implementation


def _implement_symbolic(plan: FunctionPlan, signature: Signature) -> Callable[..., Any]:
    """Return the implementation of a size-dependent plan: steps and locations for a few sets of shapes are kept."""
    run, run_within = plan.runner.runners
    num_inputs = len(signature.inputs)
    num_arrays = num_inputs + (0 if signature.new_symbols else len(signature.outputs))
    cache: dict[tuple[tuple[int, ...], ...], _Prepared] = {}

    def prepare(passed: tuple[NDArray, ...]) -> _Prepared:
        sizes = bind_symbols(signature.inputs, passed[:num_inputs])
        if len(passed) > num_inputs:
            bind_symbols(signature.outputs, passed[num_inputs:], sizes=sizes)
        previous = next((steps for steps, _ in cache.values()), ())
        steps = plan.make_steps(sizes, is_quiet=plan.runner.is_quiet, previous=previous)
        return steps, plan.workspace.place_arrays(sizes)

    def implementation(*arrays: NDArray) -> Any:
        nonlocal cache
        passed = arrays[:num_arrays]
        shapes = tuple([array.shape for array in passed])
        prepared = cache.get(shapes)
        if prepared is None:
            prepared = prepare(passed)
            # A new dict each time: other threads read the old dict.
            cache = dict([*cache.items()][1 - _MAX_CACHED_SHAPES :]) | {shapes: prepared}
        steps, placed = prepared
        if len(arrays) > num_arrays and any(placed):
            return run_within(steps, placed, *arrays)
        return run(steps, *passed)

    return implementation


@dataclass(slots=True)
class _Value:
    """The facts about a value while a function is planned.

    Attributes:
        slot: the slot in the list of values.
        type: the declared type.
        dtype: the dtype, if certain.
        last_use: the number of the last node with the value as operand; for a result of the function, beyond all nodes.
        is_temporary: whether a node makes the value.
        is_unaliased: whether a node makes the value and no other value shares its memory.
        storages: the possible storages of the value in the workspace.
    """

    slot: int
    type: GraphTensor
    dtype: DType | None
    last_use: int
    is_temporary: bool = False
    is_unaliased: bool = False
    storages: tuple[int, ...] = ()


class _Planner:
    """The state of planning a function, or a node's body.

    Args:
        function: the function.
        constants: arrays by digest.
        find: returns the kernel of a node.
        where: the function, for errors.
        dtypes: the dtypes of the inputs, if certain.
        takes_outputs: whether the caller passes memory for the results, behind the inputs, and perhaps a workspace.
    """

    def __init__(
        self,
        function: GraphFunction,
        constants: Mapping[str, NDArray],
        find: FindKernel,
        where: str,
        dtypes: Sequence[DType | None],
        *,
        takes_outputs: bool,
    ) -> None:
        self._function = function
        self._constants = constants
        self._find = find
        self._where = where
        self._free_slots: list[int] = []
        num_inputs, num_outputs = len(function.inputs), len(function.outputs) if takes_outputs else 0
        self._arrays = [constants[constant.digest] for constant in function.constants]
        self._num_passed = num_inputs + num_outputs
        self._storages: Storages | None = None
        if takes_outputs:
            self._storages = Storages(bound_symbols(spec.shape for spec in function.inputs))
        self._storage_slots: list[int] = []
        self._num_slots = self._num_passed + len(self._arrays)
        # A result with several outputs is written to the first output and copied to the others.
        self._outputs = {id_: num_inputs + i for i, (_, id_) in reversed([*enumerate(function.outputs)][:num_outputs])}
        self._last_uses = _last_uses(function)
        slots = (*range(num_inputs), *range(self._num_passed, self._num_slots))
        all_dtypes = (*dtypes, *(array.dtype for array in self._arrays))
        self._values = [
            _Value(slot, function.values[id_], dtype, self._last_uses[id_])
            for id_, (slot, dtype) in enumerate(zip(slots, all_dtypes, strict=True))
        ]

    def plan(self) -> FunctionPlan:
        nodes = tuple(self._plan_node(index, node) for index, node in enumerate(self._function.nodes))
        results = [self._values[id_] for _, id_ in self._function.outputs]
        stores = zip(results, self._function.signature.outputs, strict=True) if self._outputs else ()
        first = len(self._function.inputs)
        workspace = self._plan_workspace()
        runner = Runner(
            self._where,
            tuple(node.op for node in self._function.nodes),
            tuple(node.part for node in nodes),
            (*self._arrays, *[None] * (self._num_slots - self._num_passed - len(self._arrays))),
            tuple(
                store_step(result.slot, first + index, spec, self._function.name)
                for index, (result, spec) in enumerate(stores)
            ),
            () if self._outputs else tuple(result.slot for result in results),
            tuple(self._storage_slots),
            is_quiet=all(node.is_quiet for node in nodes),
        )
        return FunctionPlan(
            nodes,
            runner,
            tuple(result.dtype for result in results),
            workspace,
            is_symbolic=any(node.is_symbolic for node in nodes) or workspace.is_symbolic,
        )

    def _plan_node(self, index: int, node: GraphNode) -> PlannedNode:
        reads = [self._values[id_] for id_ in node.inputs]
        dtypes = [value.dtype for value in reads]
        implementation: KernelCallable | FunctionPlan | None = self._find(node)
        if implementation is None and node.body is not None:
            body = f"{self._where}, body of `{node.op}`"
            implementation = _Planner(node.body, self._constants, self._find, body, dtypes, takes_outputs=False).plan()
        assert implementation is not None  # an op without a body has a kernel
        form = None
        if isinstance(implementation, PluginKernel):
            implementation = check_results(implementation, node.op, [value.type for value in reads], node.outputs)
        if isinstance(implementation, NumpyKernel):
            ranks = [len(value.type.shape) for value in reads]
            constants = [self._constant(id_) for id_ in node.inputs]
            form = implementation.form_for(dtypes, ranks, kernel_attrs(node), constants)
            implementation = form.call
        if form is None or not form.fresh:
            for value in reads:
                value.is_unaliased = False
        out, storages = self._memory_for(index, node, form, reads)
        scratch = self._scratch_for(index, node, form, reads)
        # The caller's arrays have their declared shapes for certain.
        is_covered = any(not value.is_temporary and value.type.shape == node.outputs[0].shape for value in reads)
        is_separate = all(value.slot != out for value in reads)
        dying = dict.fromkeys(value.slot for value in reads if value.is_temporary and value.last_use == index)
        results = self._add_results(index, node, implementation, form, list(dying), storages)
        dead = [slot for slot in dying if slot not in results]
        self._free_slots += dead
        unread = [value.slot for value in self._values[-len(results) :] if value.last_use == index]
        self._free_slots += unread
        return PlannedNode(
            node,
            implementation,
            form is not None,
            tuple(value.slot for value in reads),
            results,
            (*dead, *unread),
            out,
            scratch,
            broadcasts=form is not None and form.elementwise and not is_covered and is_separate,
        )

    def _constant(self, id_: int) -> NDArray | None:
        """Return the array of a constant, ``None`` for another value."""
        position = id_ - len(self._function.inputs)
        return self._arrays[position] if 0 <= position < len(self._arrays) else None

    def _memory_for(
        self, index: int, node: GraphNode, form: KernelForm | None, reads: Sequence[_Value]
    ) -> tuple[int | None, tuple[int, ...]]:
        """Return the slot of memory for a node's only result, and the possible storages of the results.

        The memory is an output, an operand after the last use, or a storage of the workspace.
        """
        (type_, *other_types) = node.outputs
        is_fresh = form is not None and form.fresh
        shared = () if is_fresh else tuple(dict.fromkeys(n for value in reads for n in value.storages))
        if form is None or not form.takes_out or other_types or form.dtype != _numpy_dtype(type_.dtype):
            return None, shared
        output = self._outputs.get(len(self._values))
        if output is not None:
            return output, shared
        for value in reads if form.elementwise else ():
            if value.is_unaliased and value.last_use == index and value.type == type_ and value.dtype == form.dtype:
                return value.slot, value.storages
        slot, storages = self._store(type_.shape, form.dtype, index)
        return slot, (*shared, *storages)

    def _scratch_for(self, index: int, node: GraphNode, form: KernelForm | None, reads: Sequence[_Value]) -> int | None:
        """Return the slot of memory for the kernel itself, if the kernel takes scratch memory."""
        if form is None or form.scratch is None:
            return None
        dtypes = [_numpy_dtype(value.type.dtype) for value in reads]
        try:
            nbytes = form.scratch([value.type.shape for value in reads], dtypes, kernel_attrs(node))
        except (ArithmeticError, ByocError, LookupError, TypeError, ValueError):
            return None  # a call reports the error
        slot, _ = self._store((nbytes,), np.dtype(np.uint8), index)
        return slot

    def _store(self, shape: Sequence[Dim], dtype: DType, index: int) -> tuple[int | None, tuple[int, ...]]:
        """Return the slot of an array in the workspace, and the storage."""
        storage = None if self._storages is None else self._storages.add(shape, dtype, index)
        if storage is None:
            return None, ()
        slot = self._num_slots
        self._num_slots += 1
        self._storage_slots.append(slot)
        return slot, (storage,)

    def _plan_workspace(self) -> WorkspacePlan:
        if self._storages is None:
            return WorkspacePlan((), ())
        for value in self._values:
            self._storages.keep(value.storages, value.last_use)
        return self._storages.plan()

    def _add_results(
        self,
        index: int,
        node: GraphNode,
        implementation: KernelCallable | FunctionPlan,
        form: KernelForm | None,
        dying: list[int],
        storages: tuple[int, ...],
    ) -> tuple[int, ...]:
        slots = []
        for number, type_ in enumerate(node.outputs):
            dtype = form.dtype if form else None
            if isinstance(implementation, FunctionPlan):
                dtype = implementation.dtypes[number]
            slot = dying.pop(0) if dying else self._free_slots.pop() if self._free_slots else self._num_slots
            self._num_slots = max(self._num_slots, slot + 1)
            slots.append(slot)
            last_use = max(self._last_uses[len(self._values)], index)
            is_unaliased = form is not None and form.fresh and len(node.outputs) == 1
            self._values.append(
                _Value(slot, type_, dtype, last_use, is_temporary=True, is_unaliased=is_unaliased, storages=storages)
            )
        return tuple(slots)


def _last_uses(function: GraphFunction) -> list[int]:
    """Return for each value the number of the last node with a use: -1 for none, beyond all nodes for a result."""
    last_uses = [-1] * len(function.values)
    for index, node in enumerate(function.nodes):
        for id_ in node.inputs:
            last_uses[id_] = index
    for _, id_ in function.outputs:
        last_uses[id_] = len(function.nodes)
    return last_uses
