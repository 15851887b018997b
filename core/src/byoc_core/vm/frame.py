"""Frames: the registers and the memory of a running call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.runtime.arguments import check_returned, concrete_shape
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm.arena import new_arena, start_of
from byoc_core.vm.program import ALIGNMENT, HOST
from byoc_core.vm.views import ConcreteView

if TYPE_CHECKING:
    from byoc_core._native import Frame as NativeFrame
    from byoc_core.vm.device_run import DeviceRun
    from byoc_core.vm.linked_function import LinkedFunction

__all__ = ["Frame", "Sizes"]

Sizes = dict[str, int]


class Frame:
    """Registers and arena of a running call.

    Attributes:
        registers: by number; an additional last register holds the frame itself for calls defining registers.
        sizes: the input sizes of the current views; ``None`` before the first call.
        symbols: all sizes known so far in the running call, including sizes learnt during the call.
        native: the same memory for native calls, if a call of the function mixes native and Python calls.
        fill_views: makes the views of the memory passed to a call; ``None`` without such views.
        device_run: the memory and streams of devices; ``None`` if all memory is the host's.
    """

    __slots__ = ("_arena", "_linked", "device_run", "fill_views", "native", "registers", "sizes", "symbols")

    def __init__(self, linked: LinkedFunction) -> None:
        self._linked = linked
        self._arena: NDArray = np.empty(0, np.uint8)
        self.registers: list[Any] = linked.initial_registers()
        self.registers.append(self)
        self.sizes: Sizes | None = None
        self.symbols: Sizes = {}
        self.native: NativeFrame | None = None
        self.fill_views: Callable[[list[Any]], None] | None = None
        self.device_run: DeviceRun | None = linked.new_device_run()

    @property
    def run_of_devices(self) -> DeviceRun:
        """The memory and streams of devices, in a function with memory of devices."""
        assert self.device_run is not None
        return self.device_run

    def resize(self, sizes: Sizes) -> None:
        """Make the views for these sizes; the arena grows if necessary, otherwise stays.

        Raises:
            CallError: a size comes out negative or cannot be computed.
            ExecutionError: the arena does not fit into memory, of the host or of a device.
        """
        self.sizes = None
        linked = self._linked
        function = linked.function
        layout = linked.layout(sizes)
        calls = linked.call_list
        if calls is not None and not calls.is_complete:
            if self.native is None:
                self.native = calls.new_frame()
            calls.lay_out(self.native, layout, sizes)
            self._arena = self.native.arena
        elif layout.nbytes + ALIGNMENT > self._arena.nbytes:
            self._arena = new_arena(layout, f"function `{function.name}`")
        run = self.device_run
        if run is not None:
            run.resize(layout.device_nbytes)
        start = start_of(self._arena)
        first = linked.first_tensor
        for index, (tensor, offset, shape) in enumerate(
            zip(function.tensors, layout.offsets, layout.shapes, strict=True)
        ):
            domain = function.domain_of(first + index)
            if run is None or domain == HOST:
                self.registers[first + index] = np.ndarray(shape, to_numpy(tensor.dtype), self._arena, start + offset)
            else:
                memory = domain, function.pool_of(tensor.storage)
                self.registers[first + index] = run.content_at(first + index, memory, offset, tensor.dtype, shape)
        if linked.views is not None:
            self.fill_views = linked.views.prepare(self.registers, layout.views)
        self.sizes = sizes

    def release(self) -> None:
        """End a call: give up the work of devices, and memory of devices needed by other calls."""
        if self.device_run is not None and self.device_run.release():
            self.sizes = None

    def base_of(self, number: int) -> tuple[int, ConcreteView]:
        """Return the base of the view in a register, and the view for the sizes of the call."""
        assert self.sizes is not None
        view = self._linked.layout(self.sizes).views[number - self._linked.function.first_view]
        return view.base, view

    def shape_of(self, spec: TensorSpec) -> tuple[int, ...]:
        """Return the shape of a spec for the symbols known now.

        Raises:
            CallError: a size is unknown or comes out negative.
        """
        return concrete_shape(spec, self.symbols, f"function `{self._linked.function.name}`, register {spec.name}")

    def allocate(self, spec: TensorSpec) -> NDArray:
        """Allocate a fresh buffer in the shape of a spec for the symbols known now."""
        return np.empty(self.shape_of(spec), to_numpy(spec.dtype))

    def define(
        self,
        registers: Sequence[int],
        specs: Sequence[TensorSpec],
        returned: object,
        arguments: Sequence[NDArray] = (),
    ) -> None:
        """Check returned values against their specs, learn the bound symbols, and store the values in registers.

        A value is copied if it shares memory with an argument of the call, with the arena or with an earlier value:
        such memory is reused, or belongs to the caller or to another result.
        """
        for register in registers:
            for name in self._linked.binds(register):
                self.symbols.pop(name, None)
        where = f"function `{self._linked.function.name}`"
        arrays = check_returned(where, returned, specs, (self._arena, *arguments), self.symbols)
        for register, array in zip(registers, arrays, strict=True):
            self.registers[register] = array
