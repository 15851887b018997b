"""The normal form of generated C: few kernels, one loop nest each, intermediates in one workspace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from byoc_core.authoring.csource import CSourceCodegen, FunctionScope
from byoc_core.authoring.csource_parallel import PARALLEL_HEADER
from byoc_core.authoring.csource_scope import tensor_type
from byoc_core.authoring.csource_types import c_dim, c_type
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value, Var
from byoc_core.native.toolchain import BuildOptions

from byoc_ccompiler.grouping import form_groups
from byoc_ccompiler.in_place import in_place_pairs
from byoc_ccompiler.kernel import Group, Kernel, KernelContext
from byoc_ccompiler.options import CCompilerOptions
from byoc_ccompiler.registry import FAMILIES
from byoc_ccompiler.size_checks import require_results
from byoc_ccompiler.steps import flatten, shape_of
from byoc_ccompiler.vector_unit import VectorUnit, vector_preamble
from byoc_ccompiler.workspace import ALIGNMENT, Request, plan

__all__ = ["FusedCodegen"]


class _Buffer(NamedTuple):
    """One piece of the workspace: its C name and type, and when it is needed."""

    name: str
    ctype: str
    request: Request


class FusedCodegen(CSourceCodegen):
    """Turns functions into C in which ops share loops.

    Args:
        build: how the C is compiled.
        unit: the vector registers that kernels are shaped for.
        options: the user's options.
    """

    def __init__(self, build: BuildOptions, unit: VectorUnit, options: CCompilerOptions) -> None:
        super().__init__(build)
        self.unit = unit
        self.user_options = options

    def visit_function(self, scope: FunctionScope) -> None:
        """Adds the kernels of a function, its workspace, and their calls."""
        steps, results = flatten(scope.function)
        scope.forward(results, scope.function.results)
        for step in steps:
            FAMILIES[step.op].require(scope, step)
            require_results(scope, step)
        groups = form_groups(steps, FAMILIES)
        needed = _needed_outside(groups, results)
        scope.in_place = in_place_pairs(groups, scope.function.params, results)
        context = KernelContext(scope, self.unit, self.user_options, {})
        kernels = []
        for group in groups:
            stored = [result for step in group.steps for result in step.binding.results if result in needed]
            kernel = Kernel(context, group, stored)
            for output, source in scope.in_place:
                kernel.shared |= {results[output], scope.function.params[source]}
            FAMILIES[group.steps[0].op].write(kernel)
            kernels.append(kernel)
        pointers = self._lay_out(scope, kernels)
        for param in scope.function.params:
            scope.bind(param, self.visit_var(scope, param))
        for kernel, scratch in zip(kernels, pointers, strict=True):
            arguments = [scope.value(value) for value in kernel.inputs]
            arguments += [scope.buffer(value) for value in kernel.stored]
            scope.call(kernel.name, *arguments, *scratch, *kernel.sizes)
        for outer, inner in zip(scope.function.results, results, strict=True):
            scope.bind(outer, scope.value(inner))

    def preamble(self, text: str) -> str:
        """Gives the vector types, where register tiles use them, and the header of parallel loops if there are any."""
        include = f'#include "{PARALLEL_HEADER}"\n' if "byoc_parallel_for(" in text else ""
        return include + vector_preamble(self.unit, text)

    def _lay_out(self, scope: FunctionScope, kernels: Sequence[Kernel]) -> list[list[str]]:
        """Declares the workspace and the pointers into it; gives each kernel's scratch pointer, if it has one."""
        last_read: dict[Value, int] = {value: index for index, kernel in enumerate(kernels) for value in kernel.inputs}
        buffers: list[_Buffer] = []
        scratch: list[list[str]] = []
        bound: list[tuple[Var, str]] = []
        for index, kernel in enumerate(kernels):
            for value in kernel.stored:
                if scope.is_output(value):
                    continue
                dtype = tensor_type(value, scope.where)[1]
                name = scope.names.unique(f"{value.name}_data")
                request = Request(_nbytes(product(shape_of(value)), dtype), index, last_read.get(value, index))
                buffers.append(_Buffer(name, c_type(dtype), request))
                bound.append((value, name))
            scratch.append([])
            if kernel.scratch != 0:
                dtype = tensor_type(kernel.stored[0], scope.where)[1]
                name = f"scratch_{index}"
                buffers.append(_Buffer(name, c_type(dtype), Request(_nbytes(kernel.scratch, dtype), index, index)))
                scratch[-1].append(name)
        if buffers:
            offsets, total = plan([buffer.request for buffer in buffers])
            block = scope.workspace(ALIGNMENT if total == 0 else total)
            for buffer, offset in zip(buffers, offsets, strict=True):
                place = block if offset == 0 else f"({block} + {c_dim(offset)})"
                scope.statements.append(f"{buffer.ctype} *const {buffer.name} = ({buffer.ctype} *){place};")
            for value, name in bound:
                scope.bind(value, name)
        return scratch


def _nbytes(count: Dim, dtype: str) -> Dim:
    return count * dtype_info(dtype).itemsize


def _needed_outside(groups: Sequence[Group], results: Sequence[Value]) -> set[Value]:
    """Gives the values that some other group reads, or the function gives."""
    needed = set(results)
    for group in groups:
        for step in group.steps:
            needed.update(operand for operand in step.operands if operand not in group.results)
    return needed
