"""Faults caught by tests of level 4 in the process: state, end, children, memory."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
from byoc_core.runtime.graph import KernelEngine
from byoc_core.runtime.graph.document import GraphFunction
from byoc_core.runtime.hooks import RuntimeInfo
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.threads import num_threads

from fakenpu.faults.fault import Change, Fault
from fakenpu.faults.l4 import Call, around, caught


def _after_call(does: Callable[[], None]) -> Change:
    def wrap(call: Call, num_inputs: int) -> Call:
        def run(*arrays: NDArray) -> None:
            call(*arrays)
            does()

        return run

    return around(wrap)


def _silences_numpy() -> None:
    np.seterr(under="print")


def _sets_a_variable() -> None:
    os.environ["FAKENPU_CALLS"] = str(int(os.environ.get("FAKENPU_CALLS", "0")) + 1)


def _handles_a_signal() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: None)


def _changes_folder() -> None:
    os.chdir(os.pardir)


def _starts_a_thread() -> None:
    if threading.active_count() < 200:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


def _declares_fork_safety(value: object) -> Change:
    def change(names: dict[str, Any]) -> None:
        from byoc_core.runtime.hooks import hookimpl

        info: RuntimeInfo = replace(names["byoc_runtime_info"](), fork_safe=cast("bool", value))

        @hookimpl
        def byoc_runtime_info() -> RuntimeInfo:
            return info

        names["byoc_runtime_info"] = byoc_runtime_info

    return change


def _says_that_children_hang(names: dict[str, Any]) -> None:
    _declares_fork_safety(False)(names)
    _hangs_in_children(names)


def _leaves_a_gap_between_threads(names: dict[str, Any]) -> None:
    """Declare the use of threads, and forget an element between the parts of two threads."""
    names["FakeEngine"].uses_threads = property(lambda self: True)
    around(_forgets_the_middle)(names)


def _forgets_the_middle(call: Call, num_inputs: int) -> Call:
    def run(*arrays: NDArray) -> object:
        returned = call(*arrays)
        if arrays[num_inputs].size >= 200_000 and num_threads() > 1:
            arrays[num_inputs].reshape(-1)[arrays[num_inputs].size // 2] = 0
        return returned

    return run


def _uses_a_second_thread(call: Call, num_inputs: int) -> Call:
    """Sort a sixteenth as many elements as a large result in another thread, for any number of threads."""

    def run(*arrays: NDArray) -> object:
        size = arrays[-1].size
        helper = threading.Thread(target=lambda: np.sort(np.random.default_rng(0).random(size // 16)))
        if size >= 200_000:
            helper.start()
        returned = call(*arrays)
        if size >= 200_000:
            helper.join()
        return returned

    return run


def _hangs_in_children(names: dict[str, Any]) -> None:
    owner = os.getpid()

    def check() -> None:
        while os.getpid() != owner:
            time.sleep(1)

    _after_call(check)(names)


def _leaves_a_thread(names: dict[str, Any]) -> None:
    """Start a thread for the process, never ended."""
    threading.Thread(target=threading.Event().wait).start()


def _complains_at_exit(names: dict[str, Any]) -> None:
    import atexit

    atexit.register(lambda: print("fakenpu: device was not closed", file=sys.stderr))


def _leaks_a_buffer(call: Call, num_inputs: int) -> Call:
    leaked: list[bytes] = []

    def run(*arrays: NDArray) -> None:
        call(*arrays)
        leaked.append(bytes(200))

    return run


def _leaks_native_memory(names: dict[str, Any]) -> None:
    """Allocate memory of the C library, not counted by Python, without freeing."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p

    def leak() -> None:
        ctypes.memset(library.malloc(ctypes.c_size_t(16384)), 1, 16384)

    _after_call(leak)(names)


def _leaks_programs(names: dict[str, Any]) -> None:
    leaked: list[bytes] = []
    engine = names["FakeEngine"]
    build = engine.build

    def broken_build(self: KernelEngine, function: GraphFunction, constants: Mapping[str, NDArray]) -> Call:
        leaked.append(bytes(400_000))
        result: Call = build(self, function, constants)
        return result

    engine.build = broken_build


FAULTS: Mapping[str, Fault] = {
    "changes-folder": Fault(caught("process-unchanged"), run_half=_after_call(_changes_folder)),
    "complains-at-exit": Fault(caught("clean-end"), run_half=_complains_at_exit),
    "handles-a-signal": Fault(caught("process-unchanged"), run_half=_after_call(_handles_a_signal)),
    # Who says that modules do not work in a forked process is not called in one.
    "hangs-in-children-and-says-so": Fault(frozenset(), run_half=_says_that_children_hang),
    "declares-no-truth-value": Fault(frozenset({"L0-runtime-info"}), run_half=_declares_fork_safety("perhaps")),
    "leaves-a-gap-between-threads": Fault(caught("thread-numbers"), run_half=_leaves_a_gap_between_threads),
    "uses-a-second-thread": Fault(caught("thread-limit"), run_half=around(_uses_a_second_thread)),
    "hangs-in-children": Fault(caught("fork"), run_half=_hangs_in_children),
    "leaks-a-buffer": Fault(caught("memory-steady"), run_half=around(_leaks_a_buffer)),
    "leaks-native-memory": Fault(caught("memory-steady"), run_half=_leaks_native_memory),
    "leaks-programs": Fault(caught("memory-steady-compiling"), run_half=_leaks_programs),
    "leaves-a-thread": Fault(caught("clean-end"), run_half=_leaves_a_thread),
    "sets-a-variable": Fault(caught("process-unchanged"), run_half=_after_call(_sets_a_variable)),
    "silences-numpy": Fault(caught("process-unchanged"), run_half=_after_call(_silences_numpy)),
    "starts-a-thread": Fault(caught("process-unchanged"), run_half=_after_call(_starts_a_thread)),
}
