"""State kept from call to call: the buffers of a function's states, for a single sequence of calls."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from byoc_core.dims import Dim, evaluate, shape_symbols
from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError, OptionsError, near_names
from byoc_core.runtime.arguments import bind_symbols, concrete_shape
from byoc_core.runtime.devices import Device, label_of
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.runtime.threads import ForkLock
from byoc_core.vm.state_buffers import StateBuffer, assign, first_rows, new_buffer, on_host

if TYPE_CHECKING:
    from byoc_core._native import NativeState
    from byoc_core.vm.native_states import NativeStates
    from byoc_core.vm.program import StateSlot

__all__ = ["MAX_LENGTH", "State", "StateInfo"]

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


class State:
    """The values of a function's states between calls: one sequence of a model, such as one text.

    Several states serve several sequences with one set of weights. Pass a state to
    :meth:`byoc_core.VirtualMachine.run` or :meth:`byoc_core.Session.run`. The first call allocates the buffers and
    decides the sizes. A buffer with a moving length has room for more rows than used. Without room, the buffer is
    replaced by a buffer of twice the rows.

    A value used by the functions of a device lies in the memory of the device, and stays there from call to call. Calls
    by a native machine keep the buffers there; all other uses take the buffers back, without a copy.

    A state serves one call at a time: a second call at the same time is an error. If a call fails after the function
    has started, the values may be of neither call, and further calls are errors until :meth:`reset` or :meth:`load`.

    Args:
        function: the name of the function.
        infos: the states of the function.
        capacity: the rows of each moving length for which room is made at once.
        limit: the maximum rows of each moving length.

    Raises:
        OptionsError: ``capacity`` or ``limit`` is no number of rows, ``limit`` is over :data:`MAX_LENGTH`, or
            ``capacity`` is over ``limit``.
    """

    def __init__(
        self, function: str, infos: Sequence[StateInfo], *, capacity: int = 0, limit: int = MAX_LENGTH
    ) -> None:
        for name, rows, least in (("capacity", capacity, 0), ("limit", limit, 1)):
            if type(rows) is not int or rows < least:
                raise OptionsError(
                    name, "is no number of rows", got=repr(rows), expected=f"an integer, {least} or more"
                )
        if limit > MAX_LENGTH:
            raise OptionsError("limit", "is over the maximum", got=limit, expected=f"at most {MAX_LENGTH}")
        if capacity > limit:
            raise OptionsError("capacity", "is over the limit", got=capacity, expected=f"at most {limit}")
        self._moved_nbytes = 0
        self._where = f"state of function `{function}`"
        self._infos = tuple(infos)
        # Computed once, because every call asks: symbols of moving lengths, and the lengths after a call.
        self._symbols = tuple(info.length_symbol for info in infos)
        self._grown = {symbol: info.length_after for info, symbol in zip(infos, self._symbols, strict=True) if symbol}
        self._capacity = capacity
        self._limit = limit
        self._buffers: list[StateBuffer] | None = None
        self._unused_buffers: list[StateBuffer] | None = None  # for the first call after a restart
        self._sizes: dict[str, int] = {}
        self._lengths = [0] * len(self._infos)
        self._is_spoiled = False
        self._guard = ForkLock()
        self._holder: int | None = None  # the process in a call; a forked child is in no call of its parent
        # The native machine holds the buffers, perhaps in a call, if `_is_native`; else no call there succeeds.
        self._native: NativeState | None = None
        self._native_owner: NativeStates | None = None
        self._is_native = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the states, in order."""
        return tuple(info.name for info in self._infos)

    @property
    def length(self) -> int:
        """The rows of the moving lengths: of the longest, if several."""
        if self._is_native and self._native is not None:
            return self._native.size()[0]
        return max((length for info, length in self._moving()), default=0)

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers, unused rows included; 0 before the first call."""
        if self._is_native and self._native is not None:
            return self._native.size()[1]
        return sum(buffer.nbytes for buffer in self._buffers or ())

    @property
    def moved_nbytes(self) -> int:
        """The bytes copied to larger buffers so far."""
        is_elsewhere = self._is_native and self._native is not None
        return self._moved_nbytes + (self._native.size()[2] if is_elsewhere and self._native else 0)

    def __getitem__(self, name: str) -> NDArray:
        """Return a copy of the value of a state.

        Raises:
            CallError: there is no such state, there is no value before the first call, or a call is running.
        """
        if name not in self.names:
            raise CallError(
                self._where,
                f"has no `{name}`",
                expected=", ".join(self.names),
                hint=near_names(name, self.names) or None,
            )
        with self._hold():
            self._check_usable()
            if self._buffers is None:
                raise CallError(self._where, f"has no value of `{name}` before the first call")
            return on_host(self._values(self._buffers)[self.names.index(name)])

    def reset(self) -> None:
        """Return to the values before the first call; the next call decides the sizes anew.

        Raises:
            CallError: a call is running.
        """
        with self._hold():
            self._buffers, self._unused_buffers, self._sizes = None, None, {}
            self._lengths = [0] * len(self._infos)
            self._is_spoiled = False

    def fork(self) -> State:
        """Return an independent state with copies of the values; the used rows only are copied.

        Raises:
            CallError: a call is running, or an earlier call has failed.
        """
        twin = State.__new__(State)
        with self._hold():
            self._check_usable()
            twin.__dict__.update(self.__dict__)
            twin._guard, twin._holder, twin._moved_nbytes = ForkLock(), None, 0
            twin._native, twin._native_owner = None, None
            twin._lengths, twin._unused_buffers = [*self._lengths], None
            if self._buffers is not None:
                twin._buffers = [self._like(index, buffer) for index, buffer in enumerate(self._buffers)]
                for source, target in zip(self._values(self._buffers), twin._values(twin._buffers), strict=True):
                    assign(target, source)
        return twin

    def __reduce__(self) -> NoReturn:
        raise CallError(self._where, "cannot be pickled", hint="save() the values, and load() them elsewhere.")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the values to an ``.npz`` file, without unused rows; the file appears whole or not at all.

        Raises:
            CallError: a call is running, an earlier call has failed, or there is no value before the first call.
            OSError: the file cannot be written.
        """
        from byoc_core.runtime.array_files import save_arrays

        with self._hold():
            self._check_usable()
            if self._buffers is None:
                raise CallError(self._where, "has no values to save before the first call")
            values = [
                value if isinstance(value, np.ndarray) else value.numpy() for value in self._values(self._buffers)
            ]
            save_arrays(path, dict(zip(self.names, values, strict=True)))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the values by the values of a file from :meth:`save`, perhaps of another process.

        Raises:
            CallError: a call is running, or the values do not fit the function; the old values stay.
            ArtifactError: the file is no file of arrays.
            OSError: the file cannot be read.
        """
        from byoc_core.runtime.array_files import load_arrays

        arrays = load_arrays(path)
        with self._hold():
            where = f"{self._where}, file `{os.fspath(path)}`"
            if sorted(arrays) != sorted(self.names):
                raise CallError(where, "has other states", got=", ".join(arrays), expected=", ".join(self.names))
            values = [arrays[name] for name in self.names]
            sizes = self._check_values(where, values)
            lengths = [
                0 if info.slot.axis is None else value.shape[info.slot.axis]
                for info, value in zip(self._infos, values, strict=True)
            ]
            buffers = [self._new_buffer(info, value.shape) for info, value in zip(self._infos, values, strict=True)]
            for value, target in zip(values, self._values(buffers, lengths), strict=True):
                assign(target, value)
            self._lengths, self._sizes, self._buffers = lengths, self._own_sizes(sizes), buffers
            self._is_spoiled = False

    # -- for measurements --------------------------------------------------------------------------------------

    def restart(self, source: State) -> None:
        """Take over the values of another state of the function, in the present buffers if large enough.

        Repeated calls after a restart all do the same work: none of them allocates buffers.

        Raises:
            CallError: the other state is of another function, a call is running on either state, or an earlier call of
                the other has failed.
        """
        self._check_function(source._infos)
        with self._hold(), source._hold():
            source._check_usable()
            present = self._buffers or self._unused_buffers
            if source._buffers is None:
                self._buffers, self._unused_buffers, self._sizes = None, present, {}
            else:
                buffers = [
                    self._like(index, value) if own is None else own
                    for index, value in enumerate(source._buffers)
                    for own in [self._fitting(present, index, value.shape)]
                ]
                values = source._values(source._buffers)
                self._is_spoiled = True  # until the last copy has ended
                for value, own in zip(values, self._values(buffers, source._lengths), strict=True):
                    assign(own, value)
                self._buffers, self._unused_buffers, self._sizes = buffers, None, dict(source._sizes)
            self._lengths, self._is_spoiled = [*source._lengths], False

    # -- for the machine ---------------------------------------------------------------------------------------

    @contextmanager
    def calling(self, infos: Sequence[StateInfo]) -> Iterator[None]:
        """Hold the state during a call of a function with these states.

        A first call that fails before the function starts decides no sizes.

        Raises:
            CallError: another call is running, an earlier call has failed, or the state is of another function, or of
                a machine with other devices.
        """
        self._check_function(infos)
        for own, other in zip(self._infos, infos, strict=True):
            if own.device is not other.device:
                raise CallError(
                    f"{self._where}, `{own.name}`",
                    "lies on another device than the machine's",
                    got=label_of(own.device) if own.device else "the host's memory",
                    expected=label_of(other.device) if other.device else "the host's memory",
                    hint="save() the values, and load() them into a state of the machine.",
                )
        with self._hold():
            self._check_usable()
            is_first = self._buffers is None
            try:
                yield
            except BaseException:
                if is_first and not self._is_spoiled:
                    self._buffers, self._sizes = None, {}
                raise

    def known_sizes(self) -> dict[str, int]:
        """Return the sizes known before the inputs of a call: moving lengths, and sizes decided by the first call.

        Raises:
            CallError: a native machine runs a call.
        """
        if self._is_native:
            with self._hold():
                pass  # the values are back
        lengths = {symbol: n for symbol, n in zip(self._symbols, self._lengths, strict=True) if symbol is not None}
        return {**self._sizes, **lengths}

    @property
    def has_buffers(self) -> bool:
        """Whether a call has allocated the buffers."""
        return self._buffers is not None

    def allocate(self, sizes: dict[str, int]) -> None:
        """Allocate the buffers for known sizes, with the values before the first call.

        Raises:
            CallError: a size is unknown or negative, or the buffers do not fit into memory.
        """
        buffers = []
        for index, info in enumerate(self._infos):
            shape = concrete_shape(info.before, sizes, f"{self._where}, `{info.name}`")
            unused = self._fitting(self._unused_buffers, index, shape)
            buffers.append(self._new_buffer(info, shape) if unused is None else unused)
        self._set_fixed_values(buffers)
        self._buffers, self._unused_buffers = buffers, None
        self._sizes = self._own_sizes(sizes)

    def read(self) -> list[StateBuffer]:
        """Return the values before a call, in the buffers."""
        assert self._buffers is not None
        return self._values(self._buffers)

    def next_lengths(self, sizes: Mapping[str, int]) -> list[int]:
        """Return the moving lengths after a call of these sizes; 0 for fixed shapes."""
        grown = {symbol: evaluate(length, sizes) for symbol, length in self._grown.items()}
        return [0 if symbol is None else grown[symbol] for symbol in self._symbols]

    def reserve(self, lengths: Sequence[int]) -> None:
        """Make room for moving lengths; the old values stay, perhaps in larger buffers.

        Raises:
            CallError: a length goes over the limit, or the buffers do not fit into memory.
        """
        assert self._buffers is not None
        for index, (info, length) in enumerate(zip(self._infos, lengths, strict=True)):
            axis, buffer = info.slot.axis, self._buffers[index]
            if axis is None or length <= buffer.shape[axis]:
                continue
            larger = self._new_buffer(
                info, (*buffer.shape[:axis], length, *buffer.shape[axis + 1 :]), buffer.shape[axis]
            )
            used = self._lengths[index]
            source, target = (first_rows(each, axis, used) for each in (buffer, larger))
            assign(target, source)
            self._moved_nbytes += source.nbytes
            self._buffers[index] = larger

    def write(self, lengths: Sequence[int]) -> list[StateBuffer]:
        """Return the places of the values after the call, in the buffers."""
        assert self._buffers is not None
        return self._values(self._buffers, lengths)

    def finish(self, lengths: Sequence[int]) -> None:
        """Take over the moving lengths after a successful call."""
        self._lengths = [*lengths]

    def move_to(self, owner: NativeStates) -> NativeState:
        """Return the values in buffers of a native machine; moved there if needed.

        Another use of the state may take the values back at any time: a call of the native machine fails then.

        Raises:
            CallError: as :meth:`calling`.
        """
        native = self._native
        if native is None or not self._is_native or self._native_owner is not owner:
            with self.calling(owner.infos):
                native = self._give_to(owner)
                self._is_native, self._buffers, self._unused_buffers = True, None, None
        return native

    def spoil(self) -> None:
        """Refuse further calls: a call failed, and the values may be of neither call."""
        self._is_spoiled = True

    # -- inside ------------------------------------------------------------------------------------------------

    def _moving(self) -> Iterator[tuple[StateInfo, int]]:
        for info, length in zip(self._infos, self._lengths, strict=True):
            if info.slot.axis is not None:
                yield info, length

    def _check_function(self, infos: Sequence[StateInfo]) -> None:
        """Check for states of the same function."""
        if [(i.slot, i.before, i.after) for i in infos] != [(i.slot, i.before, i.after) for i in self._infos]:
            raise CallError(self._where, "is the state of another function")

    def _fitting(self, buffers: Sequence[StateBuffer] | None, index: int, shape: Sequence[int]) -> StateBuffer | None:
        """Return the buffer of a state with the sizes of a shape, and perhaps room for more rows; ``None`` if none."""
        if buffers is None:
            return None
        axis, buffer = self._infos[index].slot.axis, buffers[index]
        pairs = enumerate(zip(buffer.shape, shape, strict=True))
        fits = all(size == needed_size or (i == axis and size > needed_size) for i, (size, needed_size) in pairs)
        return buffer if fits else None

    def _set_fixed_values(self, buffers: Sequence[StateBuffer]) -> None:
        """Set the values without a moving length to the values before the first call."""
        for info, buffer in zip(self._infos, buffers, strict=True):
            if info.slot.axis is None:
                assign(buffer, np.zeros((), buffer.dtype) if info.initial is None else info.initial)

    def _own_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of the states, without moving lengths."""
        names = shape_symbols(dim for info in self._infos for dim in info.before.shape)
        return {name: sizes[name] for name in names if name in sizes and name not in self._symbols}

    def _like(self, index: int, value: StateBuffer) -> StateBuffer:
        """Return a buffer of a state in the shape of a value."""
        info = self._infos[index]
        return new_buffer(info.device, info.before.dtype, value.shape, f"{self._where}, `{info.name}`")

    def _values(self, buffers: Sequence[StateBuffer], lengths: Sequence[int] | None = None) -> list[StateBuffer]:
        """Return the values in buffers, by default of the present lengths."""
        return [
            buffer if info.slot.axis is None else first_rows(buffer, info.slot.axis, length)
            for info, buffer, length in zip(self._infos, buffers, lengths or self._lengths, strict=True)
        ]

    def _new_buffer(self, info: StateInfo, shape: Sequence[int], present_rows: int = 0) -> StateBuffer:
        """Return a buffer with room for a value of this shape, and for more rows of a moving length."""
        axis, shape = info.slot.axis, list(shape)
        if axis is not None:
            if shape[axis] > self._limit:
                raise CallError(
                    f"{self._where}, `{info.name}`",
                    "goes over the limit of rows",
                    got=shape[axis],
                    expected=f"at most {self._limit}",
                    hint="Make the state with a larger limit: new_state(limit=...).",
                )
            shape[axis] = min(self._limit, max(shape[axis], self._capacity, 2 * present_rows, _FIRST_ROWS))
        where = f"{self._where}, `{info.name}`"
        try:
            return new_buffer(info.device, info.before.dtype, shape, where)
        except (MemoryError, ValueError, OverflowError) as error:
            raise CallError(where, "does not fit into memory", got=shape) from error

    def _check_values(self, where: str, values: Sequence[NDArray]) -> dict[str, int]:
        """Check the types of values, and return the sizes of their symbols."""
        specs = [info.before for info in self._infos]
        for spec, value in zip(specs, values, strict=True):
            if value.dtype != to_numpy(spec.dtype) or value.ndim != len(spec.shape):
                raise CallError(
                    f"{where}, `{spec.name}`",
                    "has another type",
                    got=f"{value.dtype}{list(value.shape)}",
                    expected=f"{spec.dtype}[{', '.join(map(str, spec.shape))}]",
                )
        return bind_symbols(specs, values, [f"{where}, `{spec.name}`" for spec in specs])

    def _check_usable(self) -> None:
        if self._is_spoiled:
            raise CallError(
                self._where,
                "is spoiled: an earlier call did not end: the function failed, or the process was forked meanwhile",
                hint="Call reset(), or load() the values of an earlier save().",
            )

    @contextmanager
    def _hold(self) -> Iterator[None]:
        with self._guard.lock:
            is_free = self._holder != os.getpid()
            if is_free:
                if self._holder is not None:  # forked during a call of the parent, perhaps amid a new value
                    self._is_spoiled = True
                self._holder = os.getpid()
        if not is_free:
            raise self._in_use()
        try:
            if self._is_native:
                self._take_back()
            yield
        finally:
            self._holder = None

    def _give_to(self, owner: NativeStates) -> NativeState:
        """Give the values to a native machine; on an error, Python keeps the values.

        Raises:
            CallError: another call looks at the native values at this moment, or the values do not fit into memory.
        """
        try:
            if self._native is None or self._native_owner is not owner:
                self._native, self._native_owner = owner.new_state(self._capacity, self._limit), owner
        except (MemoryError, RuntimeError) as error:
            raise self._no_memory() from error
        try:
            self._native.give(None if self._buffers is None else tuple(self._buffers), tuple(self._lengths))
        except MemoryError as error:
            raise self._no_memory() from error
        except RuntimeError as error:
            raise self._in_use() from error
        return self._native

    def _take_back(self) -> None:
        """Take the buffers back from the native machine.

        Raises:
            CallError: the native machine runs a call.
        """
        assert self._native is not None
        try:
            is_spoiled, buffers, lengths, moved_nbytes = self._native.take()
        except RuntimeError:
            raise self._in_use() from None
        # `_is_native` is last: after an interrupt before, or in a child forked before, a second take reports the state
        # spoiled.
        self._is_spoiled |= is_spoiled
        if buffers is None:
            self._buffers, self._lengths, self._sizes = None, [0] * len(self._infos), {}
        else:
            self._buffers, self._lengths = [*buffers], [*lengths]
            values = [value for value in self._values(self._buffers) if isinstance(value, np.ndarray)]
            self._sizes = self._own_sizes(self._check_values(self._where, values))
        self._moved_nbytes += moved_nbytes
        self._is_native = False

    def _no_memory(self) -> CallError:
        return CallError(self._where, "does not fit into memory of the native machine")

    def _in_use(self) -> CallError:
        return CallError(
            self._where,
            "is in use by another call",
            hint="Give each sequence of calls a state: new_state(), or fork().",
        )

    def __repr__(self) -> str:
        return f"<{self._where}: {', '.join(self.names)}; length {self.length}>"
