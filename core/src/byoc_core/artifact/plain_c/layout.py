"""The workspaces of exported C: pool and offset of each planned tensor, and the bytes of each pool.

With sizes known or bounded, :func:`~byoc_core.runtime.pools.plan_pools` plans the buffers of a function. With symbolic
sizes and a single pool without limit, the tensors keep the storages of the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_core.artifact.plain_c.size_checks import LARGEST_SIZE
from byoc_core.dims import Dim, dim_max, is_nonnegative, match_symbols, substitute, symbols_of, upper_bound
from byoc_core.dtypes import dtype_info
from byoc_core.errors import OptionsError
from byoc_core.runtime.pools import Pool, PoolBuffer
from byoc_core.vm.instructions import Call, CallKind, Goto, If
from byoc_core.vm.pool_placement import count_accesses, place_buffers
from byoc_core.vm.program import ALIGNMENT, Program, VMFunction, nbytes_of

__all__ = ["DEFAULT_POOL", "PoolOffset", "WorkspaceLayout", "lay_out_workspaces"]

DEFAULT_POOL = Pool("workspace", alignment=ALIGNMENT)
"""The pool of a model without stated pools."""


@dataclass(frozen=True, slots=True)
class PoolOffset:
    """The location of a buffer: the index of the pool, and bytes from the pool's first byte."""

    pool: int
    offset: Dim


@dataclass(frozen=True, slots=True)
class WorkspaceLayout:
    """The workspace of a function.

    Attributes:
        tensors: pool and offset of each planned tensor.
        inputs: pool and offset of each input; empty if the caller passes pointers.
        outputs: pool and offset of each output; empty if the caller passes pointers.
        callees: for each pool, the offset of the memory of called functions.
        nbytes: bytes of each pool, called functions included.
        lower_bounds: the peak of live bytes of each pool, called functions excluded; ``None`` with symbolic sizes.
    """

    tensors: tuple[PoolOffset, ...]
    inputs: tuple[PoolOffset, ...]
    outputs: tuple[PoolOffset, ...]
    callees: tuple[Dim, ...]
    nbytes: tuple[Dim, ...]
    lower_bounds: tuple[int, ...] | None


def lay_out_workspaces(
    program: Program,
    max_sizes: Mapping[str, int] | None = None,
    pools: Sequence[Pool] = (DEFAULT_POOL,),
    *,
    places_arguments: bool = False,
    only: Sequence[VMFunction] | None = None,
) -> dict[str, WorkspaceLayout]:
    """Return the layout of the workspace of each function, by name.

    Args:
        program: the program; no function calls itself, directly or by others.
        max_sizes: the largest size of each symbol, for offsets independent of the sizes; ``None`` for offsets over the
            symbols.
        pools: the memories, in order of preference.
        places_arguments: whether inputs and outputs lie in the workspace too.
        only: the functions to lay out, with the functions called by these; ``None`` for all.

    Raises:
        OptionsError: a limit, a second pool or arguments in the workspace need the largest sizes.
        MemoryLimitError: a pool is too small; names pools, bytes needed, and the largest buffers at the peak.
    """
    layouts = _Layouts(program, max_sizes, pools, places_arguments=places_arguments)
    return layouts.run(program.functions if only is None else only)


class _Layouts:
    def __init__(
        self, program: Program, max_sizes: Mapping[str, int] | None, pools: Sequence[Pool], *, places_arguments: bool
    ) -> None:
        self._program = program
        self._max_sizes = max_sizes
        self._pools = pools
        self._places_arguments = places_arguments
        self._layouts: dict[str, WorkspaceLayout] = {}

    def run(self, functions: Sequence[VMFunction]) -> dict[str, WorkspaceLayout]:
        for function in functions:
            self._visit(function)
        return self._layouts

    def _visit(self, function: VMFunction) -> WorkspaceLayout:
        if function.name not in self._layouts:
            callees = [
                self._needed_by(function, call)
                for call in function.code
                if isinstance(call, Call) and call.kind is CallKind.FUNCTION
            ]
            self._layouts[function.name] = self._lay_out(function, callees)
        return self._layouts[function.name]

    def _needed_by(self, function: VMFunction, call: Call) -> tuple[Dim, ...]:
        """Return the bytes of each pool for a called function, in the symbols of the caller.

        Raises:
            OptionsError: the call may exceed the largest sizes of the called function.
        """
        callee = self._program.functions[call.callee]
        registers = self._program.registers(function)
        declared = [dim for spec in (*callee.params, *callee.results) for dim in spec.shape]
        passed = [dim for number in (*call.args, *call.results) for dim in registers[number].shape]
        sizes = match_symbols(declared, passed)
        nbytes = self._visit(callee).nbytes
        if self._max_sizes is None:
            return tuple(substitute(size, sizes) for size in nbytes)
        for name, dim in sizes.items():
            bound = self._bound(dim)
            if bound > self._max_sizes.get(name, bound):
                raise OptionsError(
                    "option `max_sizes`",
                    f"is too small for `{name}` of function `{callee.name}`, called by `{function.name}`",
                    got=self._max_sizes[name],
                    expected=f"{bound} or more",
                )
        return nbytes

    def _lay_out(self, function: VMFunction, callees: Sequence[tuple[Dim, ...]]) -> WorkspaceLayout:
        all_nbytes = [*self._sizes_of(function), *(nbytes for needed in callees for nbytes in needed)]
        sizes = {name for nbytes in all_nbytes for name in symbols_of(nbytes)}
        is_plain = len(self._pools) == 1 and self._pools[0] == DEFAULT_POOL and not self._places_arguments
        if sizes and self._max_sizes is None:
            if not is_plain:
                problem = (
                    f"are missing for the symbolic sizes of function `{function.name}`: {', '.join(sorted(sizes))}"
                )
                raise OptionsError("option `max_sizes`", problem, hint="Pools are planned for the largest sizes.")
            return self._symbolic(function, callees)
        return self._planned(function, callees)

    def _sizes_of(self, function: VMFunction) -> Iterator[Dim]:
        yield from function.storages
        if self._places_arguments:
            yield from (nbytes_of(spec.shape, spec.dtype) for spec in (*function.params, *function.results))

    def _bound(self, nbytes: Dim) -> int:
        """Return the bytes at the largest sizes.

        Raises:
            OptionsError: the bytes have no place in an address space.
        """
        bound = max(upper_bound(nbytes, self._max_sizes or {}), 0)
        if bound > LARGEST_SIZE:
            raise OptionsError("option `max_sizes`", "gives a buffer beyond any memory", got=f"{bound:,} bytes")
        return bound

    def _symbolic(self, function: VMFunction, callees: Sequence[tuple[Dim, ...]]) -> WorkspaceLayout:
        starts: list[Dim] = []
        end: Dim = 0
        for nbytes in function.storages:
            starts.append(end)
            end = end + (nbytes + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
        largest: Dim = 0
        for (nbytes,) in callees:
            needed = nbytes if is_nonnegative(nbytes) else dim_max(nbytes, 0)
            largest = needed if largest == 0 else dim_max(largest, needed)
        tensors = tuple(PoolOffset(0, starts[tensor.storage] + tensor.offset) for tensor in function.tensors)
        return WorkspaceLayout(tensors, (), (), (end,), (end + largest,), None)

    def _planned(self, function: VMFunction, callees: Sequence[tuple[Dim, ...]]) -> WorkspaceLayout:
        arguments_of_call = self._argument_buffers(function) if self._places_arguments else ()
        placement = place_buffers(self._program, function, self._pools, self._bound, tuple(arguments_of_call))
        found, planned = placement.found, placement.plan
        num_intermediates = len(found.buffers)
        locations = [PoolOffset(pool, offset) for pool, offset in zip(planned.pools, planned.offsets, strict=True)]
        ends = tuple(
            -(-nbytes // p.alignment) * p.alignment for nbytes, p in zip(planned.nbytes, self._pools, strict=True)
        )
        largest = [max((self._bound(nbytes[k]) for nbytes in callees), default=0) for k in range(len(self._pools))]
        totals = tuple(end + more for end, more in zip(ends, largest, strict=True))
        for pool, total in zip(self._pools, totals, strict=True):
            if pool.nbytes is not None and any(largest) and total > pool.nbytes:
                raise OptionsError(
                    f"pool `{pool.name}`",
                    f"is too small for function `{function.name}` with the called functions",
                    got=f"{pool.nbytes:,} bytes",
                    expected=f"{total:,} bytes",
                )
        first_tensor = function.first_view - len(function.dynamics) - len(function.tensors)
        tensors: dict[int, PoolOffset] = {}
        for buffer, location in zip(found.buffers, locations[:num_intermediates], strict=True):
            for register, offset in zip(buffer.registers, buffer.relative_offsets, strict=True):
                if register < function.first_view:
                    tensors[register - first_tensor] = PoolOffset(location.pool, location.offset + offset)
        arguments = locations[num_intermediates:]
        count = len(function.params) if arguments else 0
        return WorkspaceLayout(
            tuple(tensors[number] for number in range(len(function.tensors))),
            tuple(arguments[:count]),
            tuple(arguments[count:]),
            ends,
            totals,
            planned.lower_bounds,
        )

    def _argument_buffers(self, function: VMFunction) -> Iterator[PoolBuffer]:
        """Yield a buffer for each input, live up to the last use, and for each output, live from the first use on."""
        counts = count_accesses(function)
        last = max(len(function.code) - 1, 0)
        has_loop = any(
            target <= index for index, instruction in enumerate(function.code) for target in _targets(instruction)
        )
        uses: dict[int, list[int]] = {}
        for index, instruction in enumerate(function.code):
            if isinstance(instruction, Call):
                for register in (*instruction.args, *instruction.results):
                    base = register
                    if register >= function.first_view:
                        base = function.views[register - function.first_view].base
                    uses.setdefault(base, []).append(index)
            elif isinstance(instruction, If):
                uses.setdefault(instruction.condition, []).append(index)
        specs = (*function.params, *function.results)
        for number, spec in enumerate(specs):
            is_input = number < len(function.params)
            span = uses.get(number, [0 if is_input else last])
            start, end = (0, last) if has_loop else (0, max(span)) if is_input else (min(span), last)
            yield PoolBuffer(
                self._bound(nbytes_of(spec.shape, spec.dtype)),
                start,
                end,
                alignment=dtype_info(spec.dtype).itemsize,
                weight=counts.get(number, 1),
                name=f"{'input' if is_input else 'output'} {spec.name}",
            )


def _targets(instruction: object) -> tuple[int, ...]:
    match instruction:
        case Goto(target=target) | If(otherwise=target):
            return (target,)
    return ()
