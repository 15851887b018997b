"""State kept from call to call: the values of a function's states, for a single sequence of calls."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from byoc_core.errors import CallError, near_names
from byoc_core.runtime.devices import label_of
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.threads import ForkLock
from byoc_core.vm.state_buffers import on_host
from byoc_core.vm.state_values import MAX_LENGTH, StateInfo, StateValues

if TYPE_CHECKING:
    from byoc_core._native import NativeState
    from byoc_core.vm.native_states import NativeStates

__all__ = ["MAX_LENGTH", "State", "StateInfo"]


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
        self._where = f"state of function `{function}`"
        self._values = StateValues(self._where, infos, capacity=capacity, limit=limit)
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
        return tuple(info.name for info in self._values.infos)

    @property
    def length(self) -> int:
        """The rows of the moving lengths: of the longest, if several."""
        if self._is_native and self._native is not None:
            return self._native.size()[0]
        return self._values.length

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers, unused rows included; 0 before the first call."""
        if self._is_native and self._native is not None:
            return self._native.size()[1]
        return self._values.nbytes

    @property
    def moved_nbytes(self) -> int:
        """The bytes copied to larger buffers so far."""
        moved_natively = self._native.size()[2] if self._is_native and self._native is not None else 0
        return self._values.moved_nbytes + moved_natively

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
            if self._values.buffers is None:
                raise CallError(self._where, f"has no value of `{name}` before the first call")
            return on_host(self._values.views()[self.names.index(name)])

    def reset(self) -> None:
        """Return to the values before the first call; the next call decides the sizes anew.

        Raises:
            CallError: a call is running.
        """
        with self._hold():
            self._values.clear()
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
            twin._guard, twin._holder = ForkLock(), None
            twin._native, twin._native_owner = None, None
            twin._values = self._values.copy()
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
            if self._values.buffers is None:
                raise CallError(self._where, "has no values to save before the first call")
            values = [value if isinstance(value, np.ndarray) else value.numpy() for value in self._values.views()]
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
            self._values.replace(where, [arrays[name] for name in self.names])
            self._is_spoiled = False

    # -- for measurements --------------------------------------------------------------------------------------

    def restart(self, source: State) -> None:
        """Take over the values of another state of the function, in the present buffers if large enough.

        Repeated calls after a restart all do the same work: none of them allocates buffers.

        Raises:
            CallError: the other state is of another function, a call is running on either state, or an earlier call of
                the other has failed.
        """
        self._check_function(source._values.infos)
        with self._hold(), source._hold():
            source._check_usable()
            buffers = self._values.buffers_for(source._values)
            self._is_spoiled = True  # until the last copy has ended
            self._values.restart(source._values, buffers)
            self._is_spoiled = False

    def known_sizes(self) -> dict[str, int]:
        """Return the sizes known before the inputs of a call: moving lengths, and sizes decided by the first call.

        Raises:
            CallError: a native machine runs a call.
        """
        if self._is_native:
            with self._hold():
                pass  # the values are back
        return self._values.sizes

    # -- for the machine ---------------------------------------------------------------------------------------

    @contextmanager
    def calling(self, infos: Sequence[StateInfo]) -> Iterator[StateValues]:
        """Hold the state during a call of a function with these states; yields the values.

        A first call that fails before the function starts decides no sizes.

        Raises:
            CallError: another call is running, an earlier call has failed, or the state is of another function, or of
                a machine with other devices.
        """
        self._check_function(infos)
        for own, other in zip(self._values.infos, infos, strict=True):
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
            is_first = self._values.buffers is None
            try:
                yield self._values
            except BaseException:
                if is_first and not self._is_spoiled:
                    self._values.forget()
                raise

    def move_to(self, owner: NativeStates) -> NativeState:
        """Return the values in buffers of a native machine; moved there if needed.

        Another use of the state may take the values back at any time: a call of the native machine fails then.

        Raises:
            CallError: as :meth:`calling`.
        """
        native = self._native
        if native is None or not self._is_native or self._native_owner is not owner:
            with self.calling(owner.infos) as values:
                native = self._give_to(owner)
                self._is_native = True
                values.clear()
        return native

    def spoil(self) -> None:
        """Refuse further calls: a call failed, and the values may be of neither call."""
        self._is_spoiled = True

    # -- inside ------------------------------------------------------------------------------------------------

    def _check_function(self, infos: Sequence[StateInfo]) -> None:
        """Check for states of the same function."""
        if [(i.slot, i.before, i.after) for i in infos] != [(i.slot, i.before, i.after) for i in self._values.infos]:
            raise CallError(self._where, "is the state of another function")

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
        values = self._values
        try:
            if self._native is None or self._native_owner is not owner:
                self._native, self._native_owner = owner.new_state(values.capacity, values.limit), owner
        except (MemoryError, RuntimeError) as error:
            raise self._no_memory() from error
        try:
            self._native.give(None if values.buffers is None else tuple(values.buffers), tuple(values.lengths))
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
            self._values.clear()
        else:
            self._values.take(buffers, lengths)
        self._values.moved_nbytes += moved_nbytes
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
