"""Placement of a function's planned tensors and views for known sizes.

The C extension (``csrc/frame.c``) and :mod:`byoc_core.artifact.plain_c.layout` place storages by the same rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from byoc_core.dims import Dim, evaluate
from byoc_core.errors import CallError, ExecutionError, IRTypeError
from byoc_core.runtime.arguments import concrete_shape
from byoc_core.runtime.memory import Pool
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm.program import ALIGNMENT, HOST, Program, VMFunction
from byoc_core.vm.views import ConcreteView, ViewMaker

__all__ = ["ArenaLayout", "lay_out", "new_arena", "no_memory", "start_of"]


@dataclass(frozen=True, slots=True)
class ArenaLayout:
    """The arenas of a call.

    Attributes:
        nbytes: size of the arena in the host's memory.
        offsets: offset of each planned tensor from the aligned start of the arena of its domain and pool.
        shapes: shape of each planned tensor.
        views: the views of registers.
        device_nbytes: sizes of the arenas of devices, by domain and pool.
    """

    nbytes: int
    offsets: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    views: tuple[ConcreteView, ...]
    device_nbytes: Mapping[tuple[int, int], int] = field(default_factory=dict)


def lay_out(
    function: VMFunction,
    sizes: Mapping[str, int],
    views: ViewMaker | None,
    program: Program | None = None,
) -> ArenaLayout:
    """Return the arena layout for known sizes of the function's symbols.

    Args:
        function: the function with the planned tensors.
        sizes: sizes of the symbols bound by the inputs.
        views: makes the function's views; ``None`` without views.
        program: the program with the domains; ``None`` if all memory is the host's.

    Raises:
        CallError: a size comes out negative or cannot be computed.
        ExecutionError: the storages exceed the limit of a pool.

    Cost: linear in the tensors.
    """
    where = f"function `{function.name}`"
    starts, total = [], 0
    device_nbytes: dict[tuple[int, int], int] = {}
    domains = function.storage_domains
    for index, (nbytes, domain) in enumerate(zip(function.storages, domains, strict=True)):
        try:
            size = evaluate(nbytes, sizes)
        except IRTypeError as error:
            raise CallError(where, f"size {nbytes} cannot be computed: {error.problem}") from error
        if size < 0:
            raise CallError(where, f"size {nbytes} is negative", got=size)
        if domain == HOST or program is None:
            starts.append(total)
            total += -(-size // ALIGNMENT) * ALIGNMENT
        else:
            key = domain, function.pool_of(index)
            alignment = program.alignment_in(*key)
            start = -(-device_nbytes.get(key, 0) // alignment) * alignment
            starts.append(start)
            device_nbytes[key] = start + size
            _check_limit(where, program.pool(*key), start + size)
    symbol_sizes = dict(sizes)
    # Many tensors share a few shapes, and each symbolic shape costs some microseconds.
    found: dict[tuple[Dim, ...], tuple[int, ...]] = {}
    shapes = []
    for index, tensor in enumerate(function.tensors):
        shape = found.get(tensor.shape)
        if shape is None:
            spec = TensorSpec(f"t{index}", tensor.dtype, tensor.shape)
            shape = found[tensor.shape] = concrete_shape(spec, symbol_sizes, f"{where}, register t{index}")
        shapes.append(shape)
    offsets = tuple(starts[tensor.storage] + tensor.offset for tensor in function.tensors)
    concrete_views = tuple(views.concrete(symbol_sizes)) if views else ()
    return ArenaLayout(total, offsets, tuple(shapes), concrete_views, device_nbytes)


def _check_limit(where: str, pool: Pool | None, nbytes: int) -> None:
    if pool is not None and pool.nbytes is not None and nbytes > pool.nbytes:
        raise ExecutionError(
            where,
            f"the intermediates for the sizes of the call exceed the pool `{pool.name}`",
            got=f"{nbytes} bytes",
            expected=f"at most {pool.nbytes} bytes",
        )


def new_arena(layout: ArenaLayout, where: str) -> NDArray:
    """Allocate memory for a layout, with room to align the start.

    Raises:
        ExecutionError: the arena does not fit into memory.
    """
    try:
        return np.empty(layout.nbytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError, OverflowError) as error:
        raise no_memory(layout, where) from error


def no_memory(layout: ArenaLayout, where: str) -> ExecutionError:
    """Return the error for an arena too large for memory."""
    return ExecutionError(where, f"{layout.nbytes} bytes for intermediates cannot be allocated")


def start_of(arena: NDArray) -> int:
    """Return the offset of the first aligned byte of an arena."""
    return int(-arena.ctypes.data % ALIGNMENT)
