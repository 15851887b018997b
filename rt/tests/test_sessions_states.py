"""Sessions of byoc-core run functions with states by this library: values, errors, threads, forks, choices."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core import Session, VirtualMachine
from byoc_core.artifact import Executable
from byoc_core.errors import ByocError, CallError, ExecutionError, OptionsError
from byoc_core.native.toolchain import Toolchain
from byoc_core.profiling import Peaks
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import CallTraits, Signature
from byoc_core.vm import Builtin, CallKind, DynamicTensor, Goto, If, Instruction, Program, Ret
from byoc_core.vm.native_states import find_costly_state, find_unknown_size
from byoc_core.vm.program import StateSlot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.vm import test_states as laws
from rt.tests.saved import assert_same_bits
from rt.tests.test_sessions import interrupts, load_saved
from rt.tests.test_states import decoder, inputs
from rt.tests.written_programs import N, builtin, call, executable_of, function_of, spec

__all__ = ["interrupts"]

pytestmark = [
    pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler"),
    pytest.mark.usefixtures("native_machine"),
]

NDArray = npt.NDArray[Any]


# ---- The laws of states ----------------------------------------------------------------------------------------------


@pytest.fixture
def vm(tmp_path: Path) -> VirtualMachine:
    machine = VirtualMachine(load_saved(laws.build(), tmp_path), machine="native")
    assert machine["main"].machine.name == "native"
    return machine


test_values_stay_from_call_to_call = laws.test_values_stay_from_call_to_call
test_states_are_not_among_inputs_and_results = laws.test_states_are_not_among_inputs_and_results
test_several_sequences_share_a_machine = laws.test_several_sequences_share_a_machine
test_reset_returns_to_the_beginning = laws.test_reset_returns_to_the_beginning
test_forks_are_independent = laws.test_forks_are_independent
test_a_restarted_state_has_the_values_of_the_other = laws.test_a_restarted_state_has_the_values_of_the_other
test_saved_states_continue_in_another_machine = laws.test_saved_states_continue_in_another_machine


def tuple_of(results: NDArray | tuple[NDArray, ...]) -> tuple[NDArray, ...]:
    return results if isinstance(results, tuple) else (results,)


def outcome_of(run: Any, *arguments: Any) -> Any:
    """Return the results of a call, or the class and the text of the error."""
    try:
        return tuple_of(run(*arguments))
    except ByocError as error:
        return type(error), str(error)


def assert_same_outcome(found: Any, expected: Any) -> None:
    if isinstance(expected[0], type):
        assert found == expected
    else:
        assert_same_bits(found, expected)


@pytest.fixture
def machines(tmp_path: Path) -> tuple[VirtualMachine, ...]:
    """Return a decoder on Python's machine, on the native machine, and on another machine of Python."""
    executable = load_saved(decoder(), tmp_path)
    return tuple(VirtualMachine(executable, machine=name) for name in ("python", "native", "python"))


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_uses_gives_the_bits_of_python(
    tmp_path: Path, machines: tuple[VirtualMachine, ...], data: st.DataObject
) -> None:
    """Calls of all kinds, right and wrong, forks, resets, files and restarts, on several states and two machines."""
    python, native, other = machines
    limit = data.draw(st.sampled_from((None, 30)))
    capacity = data.draw(st.integers(0, 20))
    pairs = [tuple(machine.new_state("main", capacity=capacity, limit=limit) for machine in (python, native))]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    uses = ("call", "call", "call", "out", "part", "convert", "other", "fork", "reset", "file", "restart", "batch")
    for _ in range(data.draw(st.integers(1, 15))):
        expected_state, state = pair = data.draw(st.sampled_from(pairs))
        batch, rows = data.draw(st.integers(2, 3)), data.draw(st.integers(0, 25))
        x, added = inputs(rng, batch, rows)
        feeds: dict[str, Any] = {"x": x, "rows": added}
        match use := data.draw(st.sampled_from(uses)):
            case "call" | "batch" | "convert" | "other":
                if use == "convert":
                    feeds = {"x": np.asfortranarray(x), "rows": np.repeat(added, 2, axis=0)[::2]}
                machine = other if use == "other" else native
                expected = outcome_of(python.run, "main", feeds, None, expected_state)
                assert_same_outcome(outcome_of(machine.run, "main", feeds, None, state), expected)
            case "out" | "part":
                shapes = {"y": (batch, rows, 4), "mean": (batch + data.draw(st.integers(0, 1)),)}
                names = ["y", "mean"] if use == "out" else [data.draw(st.sampled_from(["y", "mean"]))]
                outs = [{name: np.empty(shapes[name], np.float32) for name in names} for _ in range(2)]
                expected = outcome_of(python.run, "main", feeds, outs[0], expected_state)
                found = outcome_of(native.run, "main", feeds, outs[1], state)
                assert_same_outcome(found, expected)
                if not isinstance(found[0], type):
                    assert_same_bits([*outs[1].values()], [*outs[0].values()])
                    assert all(any(buffer is result for result in found) for buffer in outs[1].values())
            case "fork":
                pairs.append((expected_state.fork(), state.fork()))
            case "reset":
                for each in pair:
                    each.reset()
            case "file":
                if expected_state.nbytes:
                    targets = data.draw(st.sampled_from(pairs))
                    for number, each in enumerate(pair):
                        each.save(tmp_path / f"{number}.npz")
                        targets[number].load(tmp_path / f"{number}.npz")
            case "restart":
                targets = data.draw(st.sampled_from(pairs))
                if targets is not pair:
                    for target, source in zip(targets, pair, strict=True):
                        target.restart(source)
        assert state.length == expected_state.length
    for expected_state, state in pairs:
        assert state.known_sizes() == expected_state.known_sizes()
        if expected_state.nbytes:
            for name in state.names:
                assert_same_bits([state[name]], [expected_state[name]])
    assert native["main"].machine.name == "native"


def test_buffers_grow_as_in_python(tmp_path: Path) -> None:
    executable = load_saved(decoder(), tmp_path)
    facts = []
    for name in ("python", "native"):
        machine = VirtualMachine(executable, machine=name)
        state = machine.new_state(capacity=3)
        found = [(state.length, state.nbytes, state.moved_nbytes)]
        for rows in (1, 1, 20, 0, 60):
            feeds = dict(zip(("x", "rows"), inputs(np.random.default_rng(1), 2, rows), strict=True))
            machine.run("main", feeds, state=state)
            found.append((state.length, state.nbytes, state.moved_nbytes))
        moved = state.moved_nbytes
        assert state["past"].shape == (82, 2, 4)
        assert (state.nbytes, state.moved_nbytes) == (found[-1][1], moved)
        facts.append(found)
    assert facts[1] == facts[0]
    assert facts[0][-1][2] > 0


# ---- Failures, interruptions, threads and processes ------------------------------------------------------------------

WORK = """
#define _POSIX_C_SOURCE 200809L
#include "byoc_ffi.h"
#include <time.h>

/* total = old + x in place, y = total. By the first element: negative, the call fails; 1000: the second and later calls
 * fail; 2000: the call takes half a second. */
BYOC_EXPORT int32_t __tvm_ffi_work(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  static int num_calls;
  (void)handle, (void)result, (void)num_args;
  const float *x = byoc_data((const DLTensor *)args[0].v_ptr), *old = byoc_data((const DLTensor *)args[1].v_ptr);
  float *total = byoc_data((const DLTensor *)args[2].v_ptr), *y = byoc_data((const DLTensor *)args[3].v_ptr);
  const int fails = x[0] < 0 || (x[0] == 1000 && num_calls);
  ++num_calls;
  for (int i = 0; i < 4; ++i) y[i] = total[i] = fails ? -99 : old[i] + x[i];
  const struct timespec time = {0, 500000000};
  if (x[0] == 2000) nanosleep(&time, NULL);
  return fails ? byoc_fail("ValueError", "function `work` of " NAME ": refuses %d", (int)x[0]) : 0;
}
"""


def worker(folder: Path, name: str = "all") -> Executable:
    """Return an executable; a name makes another library, with a counter of its own."""
    specs = [spec(name, 4) for name in ("x", "old", "new", "y")]
    function = function_of(
        specs[:2], specs[2:], [call(CallKind.EXTERN, 0, (0, 1), (2, 3)), Ret((2, 3))], states=[StateSlot(1, 0)]
    )
    signature = Signature(tuple(specs[:2]), tuple(specs[2:]))
    module = CSourceModule(
        f'#define NAME "{name}"\n{WORK}', {"work": signature}, traits={"work": CallTraits(in_place=((0, 1),))}
    )
    return load_saved(Executable(Program((function,), ("work",)), [module], is_own=True), folder)


def vector(first: float) -> NDArray:
    return np.array([first, 2, 3, 4], np.float32)


def test_a_failed_call_is_the_failure_of_python(tmp_path: Path) -> None:
    executable = worker(tmp_path)
    outcomes = []
    for name in ("python", "auto"):
        machine = VirtualMachine(executable, machine=name)
        main, state = machine["main"], machine.state()
        found: list[Any] = [outcome_of(main, vector(1)), outcome_of(main, vector(-1))]
        found += [outcome_of(main, vector(1)), outcome_of(state.__getitem__, "old"), outcome_of(state.fork)]
        state.reset()
        found += [outcome_of(main, vector(-1)), outcome_of(main, vector(1))]
        state.reset()
        found += [outcome_of(main, vector(5)), outcome_of(state.__getitem__, "old")]
        outcomes.append(found)
        assert main.machine.name == ("native" if name == "auto" else "python")
    for found, expected in zip(outcomes[1], outcomes[0], strict=True):
        assert_same_outcome(found, expected)
    assert outcomes[0][1][0] is ExecutionError
    assert "is spoiled: an earlier call did not end" in outcomes[0][2][1]


def test_python_runs_a_call_refused_by_the_native_machine_alone(tmp_path: Path) -> None:
    """The native machine has overwritten the old value when it fails; Python begins with the old value again."""
    machine = VirtualMachine(worker(tmp_path, "refused calls"))
    main = machine["main"]
    assert main.machine.name == "native"
    main(vector(1))
    np.testing.assert_array_equal(main(vector(1000)), [1001, 4, 6, 8])
    np.testing.assert_array_equal(main(vector(1)), [1002, 6, 9, 12])
    np.testing.assert_array_equal(machine.state()["old"], [1002, 6, 9, 12])


def test_refused_calls_end_the_use_of_the_native_machine(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = VirtualMachine(worker(tmp_path))
    main: Any = machine["main"]
    caplog.set_level(logging.WARNING, "byoc_core")
    for count in range(1, 5):
        main._native_states.refusals.count("for a test")
        np.testing.assert_array_equal(main(vector(1)), count * vector(1))
        assert (main.machine.name == "python") == (count >= 3)
    assert str(main.machine) == "python (the native machine has refused 3 calls: for a test)"
    assert len(caplog.records) == 1


def start_call(machine: VirtualMachine) -> threading.Thread:
    """Start a call of half a second on a state with a value, and return the thread in the middle of the call."""
    for _ in range(10):
        machine.state().reset()
        machine["main"](vector(1))
        thread = threading.Thread(target=machine["main"], args=(vector(2000),))
        thread.start()
        time.sleep(0.1)
        if outcome_of(machine.state().__getitem__, "old")[0] is CallError:
            break
        thread.join()
    return thread


def test_a_state_serves_one_call_at_a_time(tmp_path: Path) -> None:
    machine = VirtualMachine(worker(tmp_path))
    main, state = machine["main"], machine.state()
    thread = start_call(machine)
    uses: list[Any] = [
        lambda: state["old"],
        state.fork,
        lambda: state.save(tmp_path / "saved"),
        lambda: main(vector(0)),
    ]
    for use in uses:
        kind, text = outcome_of(use)
        assert kind is CallError
        assert "is in use by another call" in text
    thread.join()
    np.testing.assert_array_equal(state["old"], [2001, 4, 6, 8])
    assert main.machine.name == "native"


def test_threads_on_one_state_run_alone_or_are_refused(tmp_path: Path) -> None:
    machine = VirtualMachine(load_saved(decoder(), tmp_path), machine="native")
    main, state = machine["main"], machine.state()
    main(*inputs(np.random.default_rng(0), 1, 1))
    done, refused = [0] * 4, [0] * 4

    def work(thread: int) -> None:
        own = machine.new_state()
        values = dict(zip(("x", "rows"), inputs(np.random.default_rng(thread), 1, 1), strict=True))
        for number in range(150):
            machine.run("main", values, state=own)
            try:
                main(**values)
                done[thread] += 1
                if number % 10 == 0:
                    state["count"]  # takes the values back, unless a call is running
            except CallError as error:
                refused[thread] += "is in use by another call" in str(error)
        assert own.length == 150

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(done) + sum(refused) == 600
    assert state.length == 1 + sum(done) == state["count"]
    assert main.machine.name == "native"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_forked_amid_a_call_finds_the_state_spoiled(tmp_path: Path) -> None:
    machine = VirtualMachine(worker(tmp_path))
    main, state = machine["main"], machine.state()
    thread = start_call(machine)
    child = os.fork()
    if not child:  # pragma: no cover - another process
        spoiled = outcome_of(main, vector(1))
        state.reset()
        os._exit(0 if "did not end" in spoiled[1] and np.array_equal(main(vector(1)), vector(1)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    np.testing.assert_array_equal(state["old"], [2001, 4, 6, 8])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_goes_on_with_the_values(tmp_path: Path) -> None:
    machine = VirtualMachine(worker(tmp_path))
    machine["main"](vector(1))
    child = os.fork()
    if not child:  # pragma: no cover - another process
        os._exit(0 if np.array_equal(machine["main"](vector(1)), 2 * vector(1)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(machine["main"](vector(2)), vector(1) + vector(2))


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_call_spoils_the_state(tmp_path: Path) -> None:
    """The loop has no end if the flag is true."""
    code: list[Instruction] = [builtin(Builtin.CLONE, [1], [5]), If(0, 3), Goto(0), builtin(Builtin.COPY, [5], [3])]
    code += [builtin(Builtin.COPY, [2], [4])]
    function = function_of(
        [spec("flag", dtype="bool"), spec("x", "n", 4), spec("old", 2, 4)],
        [spec("y", "n", 4), spec("new", 2, 4)],
        [*code, Ret((3, 4))],
        dynamics=[DynamicTensor("float32", (N, 4))],
        states=[StateSlot(2, 1)],
    )
    machine = VirtualMachine(load_saved(executable_of(function), tmp_path))
    main, state = machine["main"], machine.state()
    assert main.machine.name == "native"
    x = np.ones((2, 4), np.float32)
    assert_same_bits(tuple_of(main(np.array(False), x)), [x])
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        main(np.array(True), x)
    timer.join()
    with pytest.raises(CallError, match="is spoiled: an earlier call did not end"):
        main(np.array(False), x)
    state.reset()
    assert_same_bits(tuple_of(main(np.array(False), x)), [x])
    assert main.machine.name == "native"


# ---- Lifetime and choice ---------------------------------------------------------------------------------------------


def test_states_outlive_the_machine_and_die_at_once(tmp_path: Path) -> None:
    machine = VirtualMachine(worker(tmp_path))
    state = machine.new_state()
    machine.run("main", {"x": vector(1)}, state=state)
    alive = weakref.ref(machine)
    del machine
    gc.collect()
    assert alive() is None
    np.testing.assert_array_equal(state["old"], vector(1))
    gc.disable()  # no cycle keeps the buffers
    try:
        gone = weakref.ref(state)
        del state
        assert gone() is None
    finally:
        gc.enable()


def overwriting(rows: Any, axis: int | None) -> Executable:
    """Return a function that replaces the whole old value by an input."""
    after = ("p+n",) if axis == 0 else rows
    params = [spec("x", "n"), spec("z", *after), spec("old", *rows)]
    code: list[Instruction] = [builtin(Builtin.COPY, [0], [3]), builtin(Builtin.COPY, [1], [4]), Ret((3, 4))]
    slot = StateSlot(2, 1, axis=axis)
    function = function_of(params, [spec("y", "n"), spec("new", *after)], code, states=[slot])
    return Executable(Program((function,)), [], is_own=True)


@pytest.mark.parametrize(
    ("rows", "axis", "is_costly"), [((1 << 18,), None, False), ((1 + (1 << 18),), None, True), (("p",), 0, True)]
)
def test_large_overwritten_values_stay_with_python(
    tmp_path: Path, rows: Any, axis: int | None, is_costly: bool
) -> None:
    executable = load_saved(overwriting(rows, axis), tmp_path)
    assert find_costly_state(executable.program, executable.program.functions[0]) == ("old" if is_costly else None)
    automatic = VirtualMachine(executable)["main"]
    text = "python (each call overwrites the large state `old`, and would save the old value)"
    assert str(automatic.machine) == (text if is_costly else "native (Python would handle states in each call)")
    requested = VirtualMachine(executable, machine="native")["main"]
    assert requested.machine.name == "native"
    for number in (3, 0):
        x = np.ones(number, np.float32)
        z = np.arange(3 if axis == 0 else rows[0], dtype=np.float32)
        assert_same_bits(tuple_of(requested(x, z)), tuple_of(automatic(x, z)))
        assert_same_bits([requested.state["old"]], [z])


def product(*extra: str) -> Executable:
    """Return a function with states of shape ``n*m`` and of other shapes, replaced by inputs."""
    shapes = [("n * m",), *((dim,) for dim in extra)]
    count = len(shapes)
    params = [spec("x", "n", "m"), *(spec(f"z{i}", *shape) for i, shape in enumerate(shapes))]
    params += [spec(f"old{i}", *shape) for i, shape in enumerate(shapes)]
    results = [spec("y", "n", "m"), *(spec(f"new{i}", *shape) for i, shape in enumerate(shapes))]
    places = range(1 + count)
    code: list[Instruction] = [builtin(Builtin.COPY, [i], [len(params) + i]) for i in places]
    slots = [StateSlot(1 + count + i, 1 + i) for i in range(count)]
    ret = Ret(tuple(len(params) + i for i in places))
    function = function_of(params, results, [*code, ret], states=slots)
    return Executable(Program((function,)), [], is_own=True)


@pytest.mark.parametrize(("extra", "unknown"), [((), "m"), (("2*n",), "m"), (("2*n", "m+1"), None)])
def test_sizes_unknown_from_the_values_stay_with_python(
    tmp_path: Path, extra: tuple[str, ...], unknown: str | None
) -> None:
    """The first call decides each size. A product does not determine a factor if the other factor is 0."""
    executable = load_saved(product(*extra), tmp_path)
    assert find_unknown_size(executable.program.functions[0]) == unknown
    outcomes = []
    for name in ("python", "auto"):
        main = VirtualMachine(executable, machine=name)["main"]
        reason = "native (Python would handle states in each call)"
        if unknown is not None:
            reason = f"python (the shapes of the states do not determine the size `{unknown}`)"
        assert str(main.machine) == (reason if name == "auto" else "python (as requested)")
        found = []
        for n, m in ((2, 3), (2, 3), (3, 2), (1, 6), (2, 3)):
            sizes = {"2*n": 2 * n, "m+1": m + 1}
            values = [np.full(size, m, np.float32) for size in (n * m, *(sizes[dim] for dim in extra))]
            found.append(outcome_of(main, np.ones((n, m), np.float32), *values))
        outcomes.append(found)
    for found, expected in zip(outcomes[1], outcomes[0], strict=True):
        assert_same_outcome(found, expected)
    assert [isinstance(found[0], type) for found in outcomes[0]] == [False, False, True, True, False]


JOURNAL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 2] x, float[p, 2] past_0) => (float[q, 2] present_0, float[n, 2] y) {
    present_0 = Concat<axis = 0>(past_0, x)
    y = Identity(x)
}
"""


def rows(*values: float) -> NDArray:
    return np.repeat(np.array(values, np.float32)[:, None], 2, axis=1)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "journal.onnx"
    onnx.save_model(onnx.parser.parse_model(JOURNAL), path)
    found = Session(path, ["ccompiler"], states="detect", num_threads=1)
    assert str(found.machine) == "native (Python would handle states in each call)"
    return found


def test_sessions_with_states(session: Session, tmp_path: Path) -> None:
    futures = [session.run_async(None, {"x": rows(value)}) for value in range(20)]
    for future in futures:
        future.result()
    np.testing.assert_array_equal(session.state["past_0"], rows(*range(20)))
    twin = pickle.loads(pickle.dumps(session))
    assert (session.state.length, twin.state.length, twin.machine.name) == (20, 0, "native")
    session.state.save(tmp_path / "state.npz")
    twin.state.load(tmp_path / "state.npz")
    twin.run(None, {"x": rows(7)})
    np.testing.assert_array_equal(twin.state["past_0"], rows(*range(20), 7))
    twin.warm_up(n=[1, 5])
    found = session.profile({"x": rows(1)}, num_calls=3, peaks=Peaks(1e9, 1e9))
    assert (found.sizes["p"], session.state.length) == (20, 20)
    session.reset()
    assert session.state.length == 0
    with pytest.raises(OptionsError, match="limit: is no number of rows"):
        session.new_state(limit=0)


def call_many(session: Session, values: Sequence[float]) -> NDArray:
    for value in values:
        session.run(None, {"x": rows(value)})
    return session.state["past_0"]


def test_lenient_sessions_convert(session: Session) -> None:
    lenient = Session(session.executable, casting="same_kind")
    assert lenient.machine.name in ("native", "python")
    lenient.run(None, {"x": [[1, 1], [2, 2]]})
    np.testing.assert_array_equal(call_many(lenient, [3]), rows(1, 2, 3))
