"""The normal form of generated C: few kernels, one loop nest each, intermediates in one workspace.

The stages in order: flat steps, norms taken apart, groups, chains, loads, memory plan, kernels, workspace.
The live range of an intermediate tensor follows from the inputs and outputs declared by the kernels: memory read by a
kernel without declaration may already hold another tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from byoc_core.authoring.csource import (
    PARALLEL_HEADER,
    PORTABLE_C,
    WORKSPACE_ALIGNMENT,
    CSourceCodegen,
    FunctionScope,
    c_type,
)
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Constant, Value, Var
from byoc_core.native.toolchain import BuildOptions
from byoc_core.runtime.symbolic_storage import SymbolicInterval, plan_block

from byoc_ccompiler.chains import form_chains
from byoc_ccompiler.grouping import form_groups
from byoc_ccompiler.in_place import in_place_pairs
from byoc_ccompiler.kernel import Group, Kernel, KernelContext
from byoc_ccompiler.kernels.composites import take_apart
from byoc_ccompiler.kernels.depthwise import write_chain
from byoc_ccompiler.kernels.panel_order import PanelOrder
from byoc_ccompiler.kernels.products import read_as_matrices
from byoc_ccompiler.kernels.rows import write_rows
from byoc_ccompiler.loads import form_loads, move_before_norms
from byoc_ccompiler.memory_plan import MemoryPlan, plan_memory
from byoc_ccompiler.options import CCompilerOptions
from byoc_ccompiler.registry import FAMILIES
from byoc_ccompiler.size_checks import require_replaced_windows, require_results
from byoc_ccompiler.steps import dtype_of, flatten, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["FusedCodegen"]


class _Buffer(NamedTuple):
    """A region of the workspace: C name, type, and live range."""

    name: str
    ctype: str
    interval: SymbolicInterval


class FusedCodegen(CSourceCodegen):
    """The generator of C with loops shared by ops.

    Args:
        build: the options of compiling the C.
        unit: the vector registers targeted by kernels.
        options: the user's options.
        weights: by function name, the numbers of the parameters for swappable weights.

    Attributes:
        offered: receives the names of schedules open to choice, by the name of the op's result, if not ``None``.
        panel_orders: receives, by function name and number of the parameter, the order of a weight read by the code.
    """

    def __init__(
        self,
        build: BuildOptions,
        unit: VectorUnit,
        options: CCompilerOptions,
        weights: Mapping[str, Collection[int]] = MappingProxyType({}),
    ) -> None:
        super().__init__(build)
        self.unit = unit
        self.user_options = options
        self.offered: dict[str, tuple[str, ...]] | None = None
        self._weights = weights
        self.panel_orders: dict[str, dict[int, PanelOrder]] = {}

    def visit_function(self, scope: FunctionScope) -> None:
        """Add the kernels of a function, the workspace, and the calls of the kernels."""
        steps, results = flatten(scope.function)
        scope.forward(results, scope.function.results)
        require_replaced_windows(scope)
        for step in steps:
            FAMILIES[step.op].require(scope, step)
            require_results(scope, step)
        if self.user_options.fuse:
            steps = move_before_norms(steps, results)
        steps = take_apart(steps, scope.constants)
        groups = form_groups(steps, FAMILIES, fuse=self.user_options.fuse)
        if self.user_options.fuse:
            groups = form_loads(form_chains(groups, results, self.unit), results)
        needed = _needed_outside(groups, results)
        scope.in_place = in_place_pairs(groups, scope.function.params, results)
        memory = plan_memory(groups, results, FAMILIES)
        strides = {value: location.layout.strides for value, location in memory.locations.items()}
        context = KernelContext(scope, self.unit, self.user_options, strides)
        if self.offered is not None:
            context = replace(context, offered=self.offered)
        params = scope.function.params
        weights = {params[number] for number in self._weights.get(scope.function.name, ())}
        context = replace(context, prepackable=read_as_matrices(steps, results) & weights)
        kernels = []
        for group in memory.groups:
            produced = [result for step in group.steps for result in step.binding.results]
            kernel = Kernel(
                context, group, [value for value in produced if value in needed or value in memory.locations]
            )
            for output, source in scope.in_place:
                kernel.shared |= {results[output], scope.function.params[source]}
            _writer_of(group)(kernel)
            kernels.append(kernel)
        numbers = {param: number for number, param in enumerate(params)}
        orders = {numbers[param]: order for param, order in context.panel_orders.items() if isinstance(param, Var)}
        if orders:
            self.panel_orders[scope.function.name] = orders
        loops = [loop for kernel in kernels for loop in kernel.parallel_loops]
        has_team = any(loop.is_worth_waking for loop in loops)
        if has_team:
            scope.team_work_ps = sum((loop.work_ps for loop in loops), start=scope.team_work_ps)
            scope.team_nbytes = _num_moved_bytes(scope, kernels)
        for kernel in kernels:
            kernel.declare(has_team=has_team)
        for param in scope.function.params:
            scope.bind(param, self.visit_var(scope, param))
        pointers = self._lay_out(scope, kernels, memory)
        for kernel, scratch in zip(kernels, pointers, strict=True):
            arguments = [_pointer(scope, memory, value) for value in (*kernel.inputs, *kernel.stored)]
            call = scope.call_checked if kernel.can_fail else scope.call
            call(kernel.name, *arguments, *scratch, *kernel.sizes)
            scope.mark_part(kernel.name, kernel.origins)
        for outer, inner in zip(scope.function.results, results, strict=True):
            scope.bind(outer, scope.value(inner))

    def preamble(self, text: str) -> str:
        """Return the include of the header of parallel loops, if the text has any; else the mark of portable C."""
        if self.user_options.portable:
            return f"#define {PORTABLE_C} 1\n"
        return f'#include "{PARALLEL_HEADER}"\n' if "byoc_parallel_for(" in text else ""

    def _lay_out(self, scope: FunctionScope, kernels: Sequence[Kernel], memory: MemoryPlan) -> list[list[str]]:
        """Declare the workspace and the pointers into it; return the scratch pointer of each kernel, if any."""
        last_read: dict[Value, int] = {}
        first_written: dict[Var, int] = {}
        for index, kernel in enumerate(kernels):
            last_read.update((memory.find(value).base, index) for value in kernel.inputs)
            for value in kernel.stored:
                base = memory.find(value).base
                assert isinstance(base, Var)
                first_written.setdefault(base, index)
                last_read.setdefault(base, index)
        buffers: list[_Buffer] = []
        for base, index in first_written.items():
            if scope.is_output(base):
                scope.bind(base, scope.buffer(base))
                continue
            name = scope.names.unique(f"{base.name}_data")
            dtype = dtype_of(base)
            interval = SymbolicInterval(_nbytes(product(shape_of(base)), dtype), index, last_read[base])
            buffers.append(_Buffer(name, c_type(dtype), interval))
            scope.bind(base, name)
        scratch: list[list[str]] = []
        for index, kernel in enumerate(kernels):
            scratch.append([])
            if kernel.scratch != 0:
                dtype = kernel.scratch_dtype
                name = f"scratch_{index}"
                interval = SymbolicInterval(_nbytes(kernel.scratch, dtype), index, index)
                buffers.append(_Buffer(name, c_type(dtype), interval))
                scratch[-1].append(name)
        buffers.sort(key=lambda buffer: buffer.interval.start)
        if buffers:
            offsets, total = plan_block([buffer.interval for buffer in buffers], WORKSPACE_ALIGNMENT)
            block = scope.workspace(WORKSPACE_ALIGNMENT if total == 0 else total)
            for buffer, offset in zip(buffers, offsets, strict=True):
                address = block if offset == 0 else f"({block} + {scope.sizes.text(offset)})"
                scope.statements.append(f"{buffer.ctype} *const {buffer.name} = ({buffer.ctype} *){address};")
        return scratch


def _writer_of(group: Group) -> Callable[[Kernel], None]:
    if group.chain:
        return write_chain
    return FAMILIES[group.steps[0].op].write if group.reduced is None else write_rows


def _num_moved_bytes(scope: FunctionScope, kernels: Sequence[Kernel]) -> Dim:
    """Return the bytes of the constants, parameters and results of a function."""
    constants = {value for kernel in kernels for value in kernel.inputs if isinstance(value, Constant)}
    values = {*constants, *scope.function.params, *scope.function.results}
    sizes = (product(shape_of(value)) * dtype_info(dtype_of(value)).itemsize for value in values)
    return sum(sizes, start=scope.team_nbytes)


def _pointer(scope: FunctionScope, memory: MemoryPlan, value: Value) -> str:
    """Return the C expression of the pointer to the first element of a value."""
    location = memory.find(value)
    pointer = scope.value(location.base)
    return pointer if location.layout.offset == 0 else f"{pointer} + {scope.sizes.text(location.layout.offset)}"


def _nbytes(count: Dim, dtype: str) -> Dim:
    return count * dtype_info(dtype).itemsize


def _needed_outside(groups: Sequence[Group], results: Sequence[Value]) -> set[Value]:
    """Return the values read by another group or returned by the function."""
    needed = set(results)
    for group in groups:
        for step in group.all_steps:
            needed.update(operand for operand in step.operands if operand not in group.results)
    return needed
