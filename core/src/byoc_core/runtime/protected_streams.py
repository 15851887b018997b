"""Streams of a device in the memory of the process: tasks in order, on a thread or at the latest permitted time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from byoc_core.runtime.devices import DeviceTensor

if TYPE_CHECKING:
    from byoc_core.runtime.protected_device import ProtectedDevice

__all__ = ["DeviceEvent", "DeviceStream"]


class DeviceEvent:
    """The end of a stream's work at a point.

    Attributes:
        failure: the first failure of the work, known after the event.
    """

    def __init__(self, run_until: Callable[[], None]) -> None:
        self.failure: Exception | None = None
        self._is_done = threading.Event()
        self._run_until = run_until

    def finish(self, failure: Exception | None) -> None:
        """Set the event."""
        self.failure = failure
        self._is_done.set()

    @property
    def is_done(self) -> bool:
        """Whether the event is set."""
        return self._is_done.is_set()

    def wait(self) -> None:
        """Wait for the event; work running only when awaited runs now."""
        if not self._is_done.is_set():
            self._run_until()
        self._is_done.wait()


class DeviceStream:
    """A stream: tasks in order, run by a thread of the stream, or by the waiting thread.

    Args:
        device: the device.
        seed: the seed of the delays.
        is_lazy: whether tasks run only when an event is awaited or the stream is closed, in the waiting thread.
    """

    def __init__(self, device: ProtectedDevice, seed: int, *, is_lazy: bool) -> None:
        self.device = device
        self._random = Random(seed)  # noqa: S311 - for delays
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        if not is_lazy:
            self._thread = threading.Thread(target=self._run_all, name="byoc-protected-device", daemon=True)
            self._thread.start()

    def launch(self, function: Callable[..., object], tensors: Sequence[DeviceTensor]) -> None:
        """Enqueue a call of a function on the tensors as arrays: ``function(*arrays)``."""
        self.device.check(tensors)
        self.device.count(launches=1)

        def run() -> None:
            with self.device.opened(tensors) as arrays:
                for tensor, array in zip(tensors, arrays, strict=True):
                    array.flags.writeable = self.device.is_writable(tensor)
                function(*arrays)

        self.enqueue(run)

    def enqueue(self, task: Callable[[], object]) -> None:
        """Enqueue a task, left out after a failure of an earlier task."""

        def run() -> None:
            if self._failure is None:
                try:
                    if self.device.max_delay:
                        time.sleep(self._random.random() * self.device.max_delay)
                    task()
                except Exception as error:  # noqa: BLE001 - any failure of the work is raised by the wait
                    self._failure = error

        self._tasks.put(run)

    def record(self) -> DeviceEvent:
        """Return an event set after all tasks so far."""
        event: DeviceEvent

        def run_until() -> None:
            while self._thread is None and not event.is_done:
                self._run_next()

        event = DeviceEvent(run_until)
        self._tasks.put(lambda: event.finish(self._failure))
        return event

    def close(self) -> None:
        """Wait for all tasks, and end the thread."""
        self._tasks.put(None)
        if self._thread is None:
            self._run_all()
        elif threading.current_thread() is not self._thread:  # a finaliser may run in any thread
            self._thread.join()

    def _run_all(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Run the next task; return ``False`` for the end of the stream."""
        task = self._tasks.get()
        if task is not None:
            task()
        return task is not None
