"""The values of a function's states in their buffers, with moving lengths; without any lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from byoc_core.dims import Dim, evaluate, shape_symbols
from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError, OptionsError
from byoc_core.runtime.arguments import bind_symbols, concrete_shape
from byoc_core.runtime.devices import Device
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm.state_buffers import StateBuffer, assign, first_rows, new_buffer

if TYPE_CHECKING:
    from byoc_core.vm.program import StateSlot

__all__ = ["MAX_LENGTH", "StateInfo", "StateValues"]

MAX_LENGTH = 2**31 - 1
"""The maximum limit of a moving length, in rows, and the default."""

_FIRST_ROWS = 16


@dataclass(frozen=True, slots=True)
class StateInfo:
    """A state of a function.

    Attributes:
        slot: the param and the result of the function.
        before: name, dtype and shape of the param: the value before a call.
        after: name, dtype and shape of the result: the value after a call.
        initial: the value before the first call; ``None`` for zeros, or for no rows of a moving length.
        device: the device with the buffer; ``None`` for the host's memory.
    """

    slot: StateSlot
    before: TensorSpec
    after: TensorSpec
    initial: NDArray | None = None
    device: Device | None = None

    @property
    def name(self) -> str:
        """The name of the param."""
        return self.before.name

    @property
    def length_symbol(self) -> str | None:
        """The symbol of a moving length; ``None`` for a fixed shape."""
        return None if self.slot.axis is None else str(self.before.shape[self.slot.axis])

    @property
    def length_after(self) -> Dim:
        """The rows after a call of a moving length; 0 for a fixed shape."""
        return 0 if self.slot.axis is None else self.after.shape[self.slot.axis]


class StateValues:
    """The values of a function's states, and their buffers.

    The first call allocates the buffers and decides the sizes. A buffer with a moving length has room for more rows
    than used. Without room, the buffer is replaced by a buffer of twice the rows.

    Args:
        where: the place of errors.
        infos: the states of the function.
        capacity: the rows of each moving length for which room is made at once.
        limit: the maximum rows of each moving length.

    Attributes:
        buffers: the buffer of each state; ``None`` before the first call.
        lengths: the rows of each moving length; 0 for fixed shapes.
        moved_nbytes: the bytes copied to larger buffers so far.

    Raises:
        OptionsError: ``capacity`` or ``limit`` is no number of rows, ``limit`` is over :data:`MAX_LENGTH`, or
            ``capacity`` is over ``limit``.
    """

    def __init__(self, where: str, infos: Sequence[StateInfo], *, capacity: int, limit: int) -> None:
        for name, rows, least in (("capacity", capacity, 0), ("limit", limit, 1)):
            if type(rows) is not int or rows < least:
                raise OptionsError(
                    name, "is no number of rows", got=repr(rows), expected=f"an integer, {least} or more"
                )
        if limit > MAX_LENGTH:
            raise OptionsError("limit", "is over the maximum", got=limit, expected=f"at most {MAX_LENGTH}")
        if capacity > limit:
            raise OptionsError("capacity", "is over the limit", got=capacity, expected=f"at most {limit}")
        self._where = where
        self.infos = tuple(infos)
        # Computed once, because every call asks: symbols of moving lengths, and the lengths after a call.
        self._symbols = tuple(info.length_symbol for info in infos)
        self._grown = {symbol: info.length_after for info, symbol in zip(infos, self._symbols, strict=True) if symbol}
        self.capacity = capacity
        self.limit = limit
        self.buffers: list[StateBuffer] | None = None
        self._unused_buffers: list[StateBuffer] | None = None  # for the first call after a restart
        self._sizes: dict[str, int] = {}
        self.lengths = [0] * len(self.infos)
        self.moved_nbytes = 0

    @property
    def length(self) -> int:
        """The rows of the moving lengths: of the longest, if several."""
        return max((n for n, symbol in zip(self.lengths, self._symbols, strict=True) if symbol is not None), default=0)

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers, unused rows included; 0 before the first call."""
        return sum(buffer.nbytes for buffer in self.buffers or ())

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes known before the inputs of a call: moving lengths, and sizes decided by the first call."""
        lengths = {symbol: n for symbol, n in zip(self._symbols, self.lengths, strict=True) if symbol is not None}
        return {**self._sizes, **lengths}

    # -- a call ------------------------------------------------------------------------------------------------

    def allocate(self, sizes: dict[str, int]) -> None:
        """Allocate the buffers for known sizes, with the values before the first call.

        Raises:
            CallError: a size is unknown or negative, or the buffers do not fit into memory.
        """
        buffers = []
        for index, info in enumerate(self.infos):
            shape = concrete_shape(info.before, sizes, self._location(info))
            unused = self._fitting(self._unused_buffers, index, shape)
            buffers.append(self._new_buffer(info, shape) if unused is None else unused)
        for info, buffer in zip(self.infos, buffers, strict=True):
            if info.slot.axis is None:
                assign(buffer, np.zeros((), buffer.dtype) if info.initial is None else info.initial)
        self.buffers, self._unused_buffers = buffers, None
        self._sizes = self._own_sizes(sizes)

    def next_lengths(self, sizes: Mapping[str, int]) -> list[int]:
        """Return the moving lengths after a call of these sizes; 0 for fixed shapes."""
        grown = {symbol: evaluate(length, sizes) for symbol, length in self._grown.items()}
        return [0 if symbol is None else grown[symbol] for symbol in self._symbols]

    def reserve(self, lengths: Sequence[int]) -> None:
        """Make room for moving lengths; the old values stay, perhaps in larger buffers.

        Raises:
            CallError: a length goes over the limit, or the buffers do not fit into memory.
        """
        assert self.buffers is not None
        for index, (info, length) in enumerate(zip(self.infos, lengths, strict=True)):
            axis, buffer = info.slot.axis, self.buffers[index]
            if axis is None or length <= buffer.shape[axis]:
                continue
            larger = self._new_buffer(
                info, (*buffer.shape[:axis], length, *buffer.shape[axis + 1 :]), buffer.shape[axis]
            )
            used = self.lengths[index]
            source, target = (first_rows(each, axis, used) for each in (buffer, larger))
            assign(target, source)
            self.moved_nbytes += source.nbytes
            self.buffers[index] = larger

    def views(self, lengths: Sequence[int] | None = None) -> list[StateBuffer]:
        """Return the values in the buffers: of the present lengths, or the places of values of other lengths."""
        assert self.buffers is not None
        return self._used_rows(self.buffers, lengths or self.lengths)

    # -- other values ------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Return to the values before the first call, without sizes; unused buffers stay for the first call."""
        self.buffers, self._sizes, self.lengths = None, {}, [0] * len(self.infos)

    def clear(self) -> None:
        """Return to the values before the first call, without sizes and buffers."""
        self.forget()
        self._unused_buffers = None

    def copy(self) -> StateValues:
        """Return copies of the values in buffers of their own; the used rows only are copied."""
        twin = StateValues(self._where, self.infos, capacity=self.capacity, limit=self.limit)
        twin._sizes, twin.lengths = self._sizes, [*self.lengths]
        if self.buffers is not None:
            twin.buffers = [self._like(index, buffer) for index, buffer in enumerate(self.buffers)]
            for source, target in zip(self.views(), twin.views(), strict=True):
                assign(target, source)
        return twin

    def replace(self, where: str, arrays: Sequence[NDArray]) -> None:
        """Take over the values of arrays, in new buffers.

        Args:
            where: the place of errors.
            arrays: the value of each state.

        Raises:
            CallError: the values do not fit the function, or not into memory; the old values stay.
        """
        sizes = self._check(where, arrays)
        axes = [info.slot.axis for info in self.infos]
        lengths = [0 if axis is None else value.shape[axis] for axis, value in zip(axes, arrays, strict=True)]
        buffers = [self._new_buffer(info, value.shape) for info, value in zip(self.infos, arrays, strict=True)]
        for value, target in zip(arrays, self._used_rows(buffers, lengths), strict=True):
            assign(target, value)
        self.buffers, self.lengths, self._sizes = buffers, lengths, self._own_sizes(sizes)

    def buffers_for(self, source: StateValues) -> list[StateBuffer] | None:
        """Return buffers for copies of other values: the present buffers if large enough; ``None`` without values.

        Raises:
            ExecutionError, MemoryError: there is no memory; the present values stay.
        """
        present = self.buffers or self._unused_buffers
        if source.buffers is None:
            return None
        return [
            self._like(index, value) if own is None else own
            for index, value in enumerate(source.buffers)
            for own in [self._fitting(present, index, value.shape)]
        ]

    def restart(self, source: StateValues, buffers: list[StateBuffer] | None) -> None:
        """Take over copies of the values of states of the same function, in buffers by :meth:`buffers_for`."""
        if source.buffers is None or buffers is None:
            self._unused_buffers = self.buffers or self._unused_buffers
            self.buffers = None
        else:
            for value, own in zip(source.views(), self._used_rows(buffers, source.lengths), strict=True):
                assign(own, value)
            self.buffers, self._unused_buffers = buffers, None
        self._sizes, self.lengths = dict(source._sizes), [*source.lengths]

    def take(self, arrays: Sequence[NDArray], lengths: Sequence[int]) -> None:
        """Take over arrays as buffers, with values of other lengths and sizes.

        Raises:
            CallError: the values do not fit the function.
        """
        self.buffers, self.lengths = [*arrays], [*lengths]
        used = [value for value in self.views() if isinstance(value, np.ndarray)]
        self._sizes = self._own_sizes(self._check(self._where, used))

    # -- inside ------------------------------------------------------------------------------------------------

    def _location(self, info: StateInfo) -> str:
        return f"{self._where}, `{info.name}`"

    def _used_rows(self, buffers: Sequence[StateBuffer], lengths: Sequence[int]) -> list[StateBuffer]:
        return [
            buffer if info.slot.axis is None else first_rows(buffer, info.slot.axis, length)
            for info, buffer, length in zip(self.infos, buffers, lengths, strict=True)
        ]

    def _fitting(self, buffers: Sequence[StateBuffer] | None, index: int, shape: Sequence[int]) -> StateBuffer | None:
        """Return the buffer of a state with the sizes of a shape, and perhaps room for more rows; ``None`` if none."""
        if buffers is None:
            return None
        axis, buffer = self.infos[index].slot.axis, buffers[index]
        pairs = enumerate(zip(buffer.shape, shape, strict=True))
        fits = all(size == needed_size or (i == axis and size > needed_size) for i, (size, needed_size) in pairs)
        return buffer if fits else None

    def _own_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of the states, without moving lengths."""
        names = shape_symbols(dim for info in self.infos for dim in info.before.shape)
        return {name: sizes[name] for name in names if name in sizes and name not in self._symbols}

    def _like(self, index: int, value: StateBuffer) -> StateBuffer:
        """Return a buffer of a state in the shape of a value."""
        info = self.infos[index]
        return new_buffer(info.device, info.before.dtype, value.shape, self._location(info))

    def _new_buffer(self, info: StateInfo, shape: Sequence[int], present_rows: int = 0) -> StateBuffer:
        """Return a buffer with room for a value of this shape, and for more rows of a moving length."""
        axis, shape = info.slot.axis, list(shape)
        if axis is not None:
            if shape[axis] > self.limit:
                raise CallError(
                    self._location(info),
                    "goes over the limit of rows",
                    got=shape[axis],
                    expected=f"at most {self.limit}",
                    hint="Make the state with a larger limit: new_state(limit=...).",
                )
            shape[axis] = min(self.limit, max(shape[axis], self.capacity, 2 * present_rows, _FIRST_ROWS))
        try:
            return new_buffer(info.device, info.before.dtype, shape, self._location(info))
        except (MemoryError, ValueError, OverflowError) as error:
            raise CallError(self._location(info), "does not fit into memory", got=shape) from error

    def _check(self, where: str, arrays: Sequence[NDArray]) -> dict[str, int]:
        """Check the types of values, and return the sizes of their symbols."""
        specs = [info.before for info in self.infos]
        for spec, value in zip(specs, arrays, strict=True):
            if value.dtype != to_numpy(spec.dtype) or value.ndim != len(spec.shape):
                raise CallError(
                    f"{where}, `{spec.name}`",
                    "has another type",
                    got=f"{value.dtype}{list(value.shape)}",
                    expected=f"{spec.dtype}[{', '.join(map(str, spec.shape))}]",
                )
        return bind_symbols(specs, arrays, [f"{where}, `{spec.name}`" for spec in specs])
