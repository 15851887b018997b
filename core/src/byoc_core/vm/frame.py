"""Frames: the registers and the memory of one running call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.runtime.arguments import check_returned, concrete_shape
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm.arena import new_arena, start_of
from byoc_core.vm.program import ALIGNMENT

if TYPE_CHECKING:
    from byoc_core._native import Frame as NativeFrame
    from byoc_core.vm.linked_function import LinkedFunction

__all__ = ["Frame", "Sizes"]

Sizes = dict[str, int]


class Frame:
    """Registers and arena of one running call.

    Attributes:
        registers: by number; one more, the last, holds the frame itself for calls that define registers.
        sizes: the input sizes for which the views are made; ``None`` before the first call.
        symbols: all sizes known so far in the running call, those learnt on the way included.
        native: the same memory for native calls, where a call of the function is some of those and some of Python's.
        fill_views: makes the views of what comes with a call; ``None`` where there are none.
    """

    __slots__ = ("_arena", "_linked", "fill_views", "native", "registers", "sizes", "symbols")

    def __init__(self, linked: LinkedFunction) -> None:
        self._linked = linked
        self._arena: NDArray = np.empty(0, np.uint8)
        self.registers: list[Any] = linked.initial_registers()
        self.registers.append(self)
        self.sizes: Sizes | None = None
        self.symbols: Sizes = {}
        self.native: NativeFrame | None = None
        self.fill_views: Callable[[list[Any]], None] | None = None

    def resize(self, sizes: Sizes) -> None:
        """Makes the views for these sizes; the arena grows where it has to, and stays otherwise.

        Raises:
            CallError: a size comes out negative or cannot be computed.
            ExecutionError: the arena does not fit into memory.
        """
        self.sizes = None
        linked = self._linked
        function = linked.function
        layout = linked.layout(sizes)
        calls = linked.call_list
        if calls is not None and not calls.is_whole:
            if self.native is None:
                self.native = calls.new_frame()
            calls.lay_out(self.native, layout, sizes)
            self._arena = self.native.arena
        elif layout.nbytes + ALIGNMENT > self._arena.nbytes:
            self._arena = new_arena(layout, f"function `{function.name}`")
        start = start_of(self._arena)
        first = linked.first_tensor
        for index, (tensor, offset, shape) in enumerate(
            zip(function.tensors, layout.offsets, layout.shapes, strict=True)
        ):
            self.registers[first + index] = np.ndarray(shape, to_numpy(tensor.dtype), self._arena, start + offset)
        if linked.views is not None:
            self.fill_views = linked.views.prepare(self.registers, layout.views)
        self.sizes = sizes

    def allocate(self, spec: TensorSpec) -> NDArray:
        """Gives a fresh buffer of the shape that a spec has for the symbols known now."""
        where = f"function `{self._linked.function.name}`, register {spec.name}"
        return np.empty(concrete_shape(spec, self.symbols, where), to_numpy(spec.dtype))

    def define(
        self,
        registers: Sequence[int],
        specs: Sequence[TensorSpec],
        returned: object,
        arguments: Sequence[NDArray] = (),
    ) -> None:
        """Checks returned values against their specs, learns the symbols they bind, and puts them into registers.

        A value that shares memory with one of the call's arguments, with the arena or with a value before it is
        copied: that memory is reused, is the caller's, or is another result.
        """
        for register in registers:
            for name in self._linked.binds(register):
                self.symbols.pop(name, None)
        where = f"function `{self._linked.function.name}`"
        arrays = check_returned(where, returned, specs, (self._arena, *arguments), self.symbols)
        for register, array in zip(registers, arrays, strict=True):
            self.registers[register] = array
