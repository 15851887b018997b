"""Steps of lowered functions: each top-level statement as a function of its own, with parameters for buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from byoc_core.authoring.csource_shared import WORKSPACE_ALIGNMENT
from byoc_core.backend.lowered_buffers import Access, Buffer, BufferRole
from byoc_core.backend.lowered_function import LoweredFunction, Statement, parts_of, symbols_in
from byoc_core.dims import Dim, linear_form, product, shape_symbols
from byoc_core.dtypes import dtype_info
from byoc_core.errors import CodegenError
from byoc_core.ir import CALL_DPS_PACKED, Binding, Function, TensorType, Var
from byoc_core.runtime.symbolic_storage import BlockPlan, SymbolicInterval, plan_block

__all__ = ["Step", "find_intervals", "steps_of", "symbol_of", "symbols_of_function"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step as a function of its own.

    Attributes:
        function: parameters and results stand for buffers.
        reads: the buffers of the parameters, in order.
        writes: the buffers of the results, in order.
        scratch: intermediates of this step alone, in the workspace of the step.
        statement: the body.
    """

    function: Function
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    statement: Statement

    def plan_scratch(self) -> BlockPlan:
        """Return the places of the scratch buffers in a workspace of at least one byte."""
        plan = plan_block([SymbolicInterval(_nbytes(buffer), 0, 0) for buffer in self.scratch], WORKSPACE_ALIGNMENT)
        return BlockPlan(plan.offsets, WORKSPACE_ALIGNMENT if plan.nbytes == 0 else plan.nbytes)


def steps_of(lowered: LoweredFunction) -> list[Step]:
    """Return a step for each top-level statement.

    Raises:
        CodegenError: the shapes of the parameters do not determine a size in a statement.
    """
    steps = []
    written: set[Buffer] = set()
    users = Counter(buffer for statement in lowered.statements for buffer in {p.buffer for p in parts_of(statement)})
    for number, statement in enumerate(lowered.statements):
        accesses: dict[Buffer, set[Access]] = {}
        for part in parts_of(statement):
            if part.buffer.role is not BufferRole.CONSTANT:
                accesses.setdefault(part.buffer, set()).add(part.access)
        defined = written.union(lowered.inputs)
        # A buffer read before the first write has no elements, or is read in a part without elements.
        writes = [buffer for buffer, kinds in accesses.items() if kinds != {Access.READ} or buffer not in defined]
        if number == len(lowered.statements) - 1:  # outputs without elements need no statement
            writes += [buffer for buffer in lowered.outputs if buffer not in written and buffer not in writes]
        # A buffer written in several steps keeps the elements of earlier steps.
        reads = [buffer for buffer in accesses if buffer in defined]
        written.update(writes)
        scratch = [b for b in writes if b.role is BufferRole.INTERMEDIATE and users[b] == 1]
        if len(scratch) == len(writes):  # a function has a result
            scratch = scratch[1:]
        writes = [buffer for buffer in writes if buffer not in scratch]
        steps.append(_step(lowered, number, statement, reads, writes, scratch))
    return steps


def _step(
    lowered: LoweredFunction,
    number: int,
    statement: Statement,
    reads: Sequence[Buffer],
    writes: Sequence[Buffer],
    scratch: Sequence[Buffer],
) -> Step:
    reads = list(reads)

    def missing() -> frozenset[str]:
        shapes = shape_symbols(dim for buffer in (*reads, *writes, *scratch) for dim in buffer.shape)
        return (symbols_in(statement) | shapes) - _determined(reads)

    # Outputs determine no sizes: a function with sizes known only from its outputs would return new tensors.
    while unknown := missing():
        further = (buffer for buffer in lowered.inputs if buffer not in reads and unknown & _determined([buffer]))
        found = next(further, None)
        if found is None:
            raise CodegenError(
                f"function `{lowered.function.name}`",
                f"the size of {', '.join(sorted(unknown))} cannot be computed from the shapes of the parameters",
            )
        reads.append(found)
    params = tuple(Var(buffer.name, TensorType(buffer.shape, buffer.dtype)) for buffer in reads)
    results = tuple(Var(f"{buffer.name}_out", TensorType(buffer.shape, buffer.dtype)) for buffer in writes)
    symbol = f"{symbol_of(lowered.function)}_step{number}"
    binding = Binding(results, CALL_DPS_PACKED, params, CALL_DPS_PACKED.normalise_attrs({"symbol": symbol}))
    attrs = {"global_symbol": symbol, "lowered": symbol_of(lowered.function)}
    return Step(
        Function(lowered.function.name, params, (binding,), results, attrs),
        tuple(reads),
        tuple(writes),
        tuple(scratch),
        statement,
    )


def _determined(buffers: Iterable[Buffer]) -> frozenset[str]:
    """Return the symbols determined by the shapes of buffers, as the wrappers of functions compute them."""
    forms = (linear_form(dim) for buffer in buffers for dim in buffer.shape if not isinstance(dim, int))
    return frozenset(form[0] for form in forms if form is not None)


def symbols_of_function(function: Function) -> frozenset[str]:
    """Return the symbols in the types of parameters and results."""
    types = [value.type for value in (*function.params, *function.results)]
    return shape_symbols(dim for type_ in types if isinstance(type_, TensorType) for dim in type_.shape or ())


def find_intervals(lowered: LoweredFunction, steps: Sequence[Step]) -> tuple[list[Buffer], list[SymbolicInterval]]:
    """Return the intermediates between steps and their live ranges over the steps."""
    ranges: dict[Buffer, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for buffer in (*step.reads, *step.writes):
            if buffer.role is BufferRole.INTERMEDIATE:
                ranges[buffer] = (ranges.get(buffer, (number, number))[0], number)
    return list(ranges), [SymbolicInterval(_nbytes(buffer), *span) for buffer, span in ranges.items()]


def symbol_of(function: Function) -> str:
    """Return the symbol of an annotated function or of a step."""
    return str(function.attrs["global_symbol"])


def _nbytes(buffer: Buffer) -> Dim:
    return product(buffer.shape) * dtype_info(buffer.dtype).itemsize
