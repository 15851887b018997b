"""Values of states that move between Python's machine and the native machine: many moves, interrupted moves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import VirtualMachine
from byoc_core.artifact import Executable
from byoc_core.errors import CallError
from byoc_core.native.toolchain import Toolchain
from byoc_core.vm import Builtin, Instruction, Program, Ret
from byoc_core.vm.program import StateSlot
from byoc_core.vm.state_values import StateValues

from rt.tests.test_sessions import load_saved
from rt.tests.written_programs import builtin, function_of, spec

pytestmark = [
    pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler"),
    pytest.mark.usefixtures("native_machine"),
]

NDArray = npt.NDArray[Any]


def memory(folder: Path) -> Executable:
    """Return a function with the old value as the result, and the input as the new value."""
    code: list[Instruction] = [builtin(Builtin.COPY, [1], [2]), builtin(Builtin.COPY, [0], [3]), Ret((2, 3))]
    params, results = [spec("x", 4), spec("old", 4)], [spec("y", 4), spec("new", 4)]
    function = function_of(params, results, code, states=[StateSlot(1, 1)])
    return load_saved(Executable(Program((function,)), [], is_own=True), folder)


def vector(first: float) -> NDArray:
    return np.array([first, 2, 3, 4], np.float32)


# ---- Many moves ------------------------------------------------------------------------------------------------------

MOVES = """
import gc
import sys

import byoc_core
import numpy as np
from byoc_core.plugin.installation import using

from core.tests.native_machine_installation import installation_with_machines
from rt.tests.test_sessions_memory import STATM, resident_nbytes

with using(installation_with_machines({"rt": "rt.tests.machine_under_test:find_library"})):
    machine = byoc_core.VirtualMachine(byoc_core.load(sys.argv[1]), machine="native")
main, state = machine["main"], machine.new_state()
assert main.machine.name == "native"
x = {"x": np.ones(4, np.float32)}


def move(count):
    for _ in range(count):
        machine.run("main", x, state=state)
        state["old"]


move(1_000)
before = resident_nbytes() if STATM.exists() else 0
move(200_000)
grown = resident_nbytes() - before if STATM.exists() else 0
assert np.array_equal(state["old"], x["x"])
machine.run("main", x, state=state)
del state
gc.collect()
print("ended", grown)
"""


def test_many_moves_leave_no_memory_and_no_chain(tmp_path: Path) -> None:
    """A chain of arrays around arrays, one for each move, would overflow the stack when freed."""
    memory(tmp_path).save(tmp_path / "moves.byoc")
    found = subprocess.run(
        [sys.executable, "-c", MOVES, str(tmp_path / "moves.byoc")], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    text, grown = found.stdout.split()
    assert text == "ended"
    assert int(grown) < 5_000_000


def test_a_given_array_comes_back_as_itself(tmp_path: Path) -> None:
    machine = VirtualMachine(memory(tmp_path), machine="native")
    state: Any = machine.new_state()
    machine.run("main", {"x": vector(1)}, state=state)
    assert np.array_equal(state["old"], vector(1))
    first = state._values.buffers[0]
    machine.run("main", {"x": vector(7)}, state=state)
    assert (state._is_native, state._values.buffers) == (True, None)
    assert np.array_equal(state["old"], vector(7))
    assert state._values.buffers[0] is first
    # values given without being taken first: an interrupt may lie in between
    native, given = state._native, vector(9)
    native.give((first,), (0,))
    native.give((given,), (0,))
    taken = native.take()[1]
    assert taken is not None
    assert taken[0] is given
    del taken
    assert sys.getrefcount(given) == 2


# ---- Overlapping buffers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_whole", [True, False])
def test_overlapping_buffers_are_refused_as_by_python(tmp_path: Path, is_whole: bool) -> None:
    code: list[Instruction] = [builtin(Builtin.COPY, [0], [2]), builtin(Builtin.COPY, [1], [3])]
    code += [builtin(Builtin.COPY, [0], [4]), Ret((2, 3, 4))]
    params, results = [spec("x", 4), spec("old", 4)], [spec("y", 4), spec("z", 4), spec("new", 4)]
    function = function_of(params, results, code, states=[StateSlot(1, 2)])
    executable = load_saved(Executable(Program((function,)), [], is_own=True), tmp_path)
    for name in ("python", "native"):
        machine = VirtualMachine(executable, machine=name)
        state = machine.new_state()
        machine.run("main", {"x": vector(1)}, state=state)
        buffer = np.zeros(6, np.float32)
        out = {"y": buffer[:4], "z": buffer[:4] if is_whole else buffer[2:]}
        with pytest.raises(CallError, match=r"output 1 `z`.*overlaps another output.*output 0 `y`"):
            machine.run("main", {"x": vector(7)}, out=out, state=state)
        assert not buffer.any()
        assert np.array_equal(state["old"], vector(1))
        x = np.arange(8, dtype=np.float32)  # a buffer may share the memory of an input
        out = {"y": x[2:6], "z": np.empty(4, np.float32)}
        machine.run("main", {"x": x[:4]}, out=out, state=state)
        assert np.array_equal(x, [0, 1, 0, 1, 2, 3, 6, 7])
        assert np.array_equal(out["z"], vector(1))


# ---- Interrupted moves -----------------------------------------------------------------------------------------------


class Interrupted:
    """The native values of a state; an event follows each take, before Python has the values."""

    def __init__(self, native: Any, event: Callable[[], None]) -> None:
        self._native, self._event = native, event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def take(self) -> Any:
        taken = self._native.take()
        self._event()
        return taken


def begun(folder: Path) -> tuple[VirtualMachine, Any]:
    """Return a machine with a state whose values the native machine has."""
    machine = VirtualMachine(memory(folder), machine="native")
    machine.run("main", {"x": vector(1)})
    return machine, machine.state()


def assert_spoiled_until_reset(machine: VirtualMachine) -> None:
    for use in (lambda: machine.run("main", {"x": vector(2)}), lambda: machine.state()["old"], machine.state().fork):
        with pytest.raises(CallError, match="is spoiled: an earlier call did not end"):
            use()
    machine.state().reset()
    assert not np.any(machine.run("main", {"x": vector(2)}))
    assert np.array_equal(machine.run("main", {"x": vector(3)}), vector(2))


def test_values_lost_by_an_interrupt_spoil_the_state(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    machine, state = begun(tmp_path)
    native = state._native
    state._native = Interrupted(native, interrupt)
    with pytest.raises(KeyboardInterrupt):
        state["old"]
    state._native = native
    assert_spoiled_until_reset(machine)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_values_lost_by_a_fork_spoil_the_state_of_the_child(tmp_path: Path) -> None:
    statuses: list[int] = []

    def fork() -> None:
        child = os.fork()
        if not child:  # pragma: no cover - another process
            state._native = native
            try:
                assert_spoiled_until_reset(machine)
            except BaseException:
                os._exit(1)
            os._exit(0)
        statuses.append(os.waitpid(child, 0)[1])

    machine, state = begun(tmp_path)
    native = state._native
    state._native = Interrupted(native, fork)
    assert np.array_equal(state["old"], vector(1))
    assert statuses == [0]


def test_an_interrupt_amid_the_return_of_values_spoils_the_state(tmp_path: Path) -> None:
    machine, state = begun(tmp_path)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateValues, "_own_sizes", interrupt)
        with pytest.raises(KeyboardInterrupt):
            state["old"]
    assert_spoiled_until_reset(machine)


# ---- Refused moves ---------------------------------------------------------------------------------------------------


class Refusing:
    """The native values of a state, or their machine; the first use of a method is refused by an error."""

    def __init__(self, target: Any, method: str, error: Exception) -> None:
        self._target, self._method, self._errors = target, method, [error]

    def __getattr__(self, name: str) -> Any:
        return self._refuse if name == self._method and self._errors else getattr(self._target, name)

    def _refuse(self, *_: Any) -> None:
        raise self._errors.pop()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("another thread holds the state"), "is in use by another call"),
        (MemoryError(), "does not fit into memory of the native machine"),
    ],
)
def test_a_refused_move_leaves_the_values_to_python(tmp_path: Path, error: Exception, text: str) -> None:
    machine, state = begun(tmp_path)
    assert np.array_equal(state["old"], vector(1))
    state._native = Refusing(state._native, "give", error)
    with pytest.raises(CallError, match=text) as caught:
        machine.run("main", {"x": vector(2)})
    assert caught.value.__cause__ is error
    assert np.array_equal(state["old"], vector(1))
    assert np.array_equal(machine.run("main", {"x": vector(2)}), vector(1))
    assert np.array_equal(state["old"], vector(2))


@pytest.mark.parametrize("error", [RuntimeError("no memory for a state"), MemoryError()])
def test_a_native_machine_without_memory_leaves_the_values_to_python(tmp_path: Path, error: Exception) -> None:
    machine = VirtualMachine(memory(tmp_path), machine="native")
    main: Any = machine["main"]
    main._native_states = Refusing(main._native_states, "new_state", error)
    with pytest.raises(CallError, match="does not fit into memory of the native machine") as caught:
        main(vector(1))
    assert caught.value.__cause__ is error
    with pytest.raises(CallError, match="no value of `old` before the first call"):
        machine.state()["old"]
    assert not np.any(main(vector(1)))
    assert np.array_equal(main(vector(2)), vector(1))
