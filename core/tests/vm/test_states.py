"""States kept by the machine and by callers: calls, reset, fork, save, load, limits, threads, and failures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.artifact import Executable
from byoc_core.dims import evaluate, linear_terms, parse_dim
from byoc_core.errors import ArtifactError, CallError, ExecutionError, OptionsError
from byoc_core.ir import IRModule, StateVariable, declare_states
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm.state import State
from byoc_core.vm.stateful_callable import bind_linear
from hypothesis import given
from hypothesis import strategies as st

# A running sum and a log of all inputs.
TEXT = """
@R.function
def main(x: R.Tensor(("n", 3)), total: R.Tensor((3,)), log: R.Tensor(("p", 3))):
    R.func_attr({"input_names": ("x", "total", "log"), "output_names": ("seen", "new_total", "new_log"),
                 "states": (("total", "new_total"), ("log", "new_log", 0))})
    row = R.sum(x, axis=(0,))
    new_total = R.add(total, row)
    new_log = R.concat(log, x, axis=0)
    seen = R.sum(new_log, axis=(0,))
    return seen, new_total, new_log
"""


def build(text: str = TEXT) -> Executable:
    return byoc_core.build(parse(text), [])


@pytest.fixture(params=["native", "python"])
def vm(request: pytest.FixtureRequest) -> VirtualMachine:
    return VirtualMachine(build(), native=request.param == "native")


def rows(count: int, start: float = 1.0) -> NDArray:
    return np.arange(count * 3, dtype=np.float32).reshape(count, 3) + np.float32(start)


def test_values_stay_from_call_to_call(vm: VirtualMachine) -> None:
    total, log = np.zeros(3, np.float32), np.empty((0, 3), np.float32)
    for step, count in enumerate((2, 1, 0, 5, 40)):
        x = rows(count, step)
        seen = vm["main"](x)
        total, log = total + x.sum(0), np.concatenate([log, x])
        np.testing.assert_allclose(seen, log.sum(0), rtol=1e-5)
        np.testing.assert_allclose(vm.state()["total"], total, rtol=1e-5)
        np.testing.assert_array_equal(vm.state()["log"], log)
        assert vm.state().length == len(log)


def test_states_are_not_among_inputs_and_results(vm: VirtualMachine) -> None:
    main = vm["main"]
    assert [spec.name for spec in main.params] == ["x"]
    assert [spec.name for spec in main.results] == ["seen"]
    assert vm.run("main", {"x": rows(1)}) is not None
    np.testing.assert_array_equal(main(x=rows(1)), 2 * rows(1)[0])
    out = np.empty(3, np.float32)
    assert vm.run("main", {"x": rows(1)}, out={"seen": out}) is out
    np.testing.assert_array_equal(out, 3 * rows(1)[0])
    with pytest.raises(CallError, match="has no input `total`"):
        main.run({"x": rows(1), "total": np.zeros(3, np.float32)})
    with pytest.raises(CallError, match="has no output `new_log`"):
        main.run({"x": rows(1)}, out={"new_log": rows(1)})
    with pytest.raises(CallError, match=r"wrong number of inputs; got 2, expected 1 \(x\)"):
        main(rows(1), rows(1))


def test_several_sequences_share_a_machine(vm: VirtualMachine) -> None:
    first, second = vm.new_state(), vm.new_state()
    vm.run("main", {"x": rows(2)}, state=first)
    vm.run("main", {"x": rows(1)}, state=second)
    vm.run("main", {"x": rows(3)}, state=first)
    assert (first.length, second.length, vm.state().length) == (5, 1, 0)
    np.testing.assert_array_equal(second["log"], rows(1))


def test_reset_returns_to_the_beginning(vm: VirtualMachine) -> None:
    before = vm["main"](rows(2))
    vm["main"](rows(7))
    vm.state().reset()
    assert vm.state().length == 0
    np.testing.assert_array_equal(vm["main"](rows(2)), before)


def test_forks_are_independent(vm: VirtualMachine) -> None:
    vm["main"](rows(2))
    twin = vm.state().fork()
    left = vm["main"](rows(1))
    right = vm.run("main", {"x": rows(1)}, state=twin)
    np.testing.assert_array_equal(left, right)
    vm.run("main", {"x": rows(4)}, state=twin)
    assert (vm.state().length, twin.length) == (3, 7)
    fresh = vm.new_state().fork()
    vm.run("main", {"x": rows(1)}, state=fresh)
    assert fresh.length == 1


def test_a_restarted_state_has_the_values_of_the_other(vm: VirtualMachine) -> None:
    start, current = vm.new_state(), vm.new_state()
    vm.run("main", {"x": rows(20)}, state=start)
    expected = {name: start[name] for name in start.names}
    results = []
    for _ in range(3):
        current.restart(start)
        results.append(vm.run("main", {"x": rows(2, 5.0)}, state=current))
        assert current.length == 22
    np.testing.assert_array_equal(results, [results[0]] * 3)
    assert start.length == 20
    for name, value in expected.items():
        np.testing.assert_array_equal(start[name], value)


def test_a_restarted_state_keeps_its_buffers(vm: VirtualMachine) -> None:
    first, current = vm.new_state(), vm.new_state()
    for _ in range(3):
        current.restart(first)
        np.testing.assert_allclose(vm.run("main", {"x": rows(30)}, state=current), rows(30).sum(0))
        np.testing.assert_allclose(current["total"], rows(30).sum(0))
        assert (current.length, current.moved_nbytes) == (30, 0)
    larger = vm.new_state()
    vm.run("main", {"x": rows(100)}, state=larger)
    current.restart(larger)
    np.testing.assert_array_equal(current["log"], rows(100))
    with pytest.raises(CallError, match="in use by another call"):
        current.restart(current)


def test_a_restart_without_memory_leaves_the_values(vm: VirtualMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    current, larger = vm.new_state(), vm.new_state()
    vm.run("main", {"x": rows(2)}, state=current)
    vm.run("main", {"x": rows(100)}, state=larger)

    def fail(*_: object) -> NDArray:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("byoc_core.vm.state_values.new_buffer", fail)
        with pytest.raises(MemoryError):
            current.restart(larger)
    np.testing.assert_array_equal(current["log"], rows(2))
    vm.run("main", {"x": rows(1)}, state=current)
    assert current.length == 3


def test_a_refused_first_call_keeps_the_buffers_of_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    vm = VirtualMachine(build(), native=False)
    first, current = vm.new_state(), vm.new_state()
    vm.run("main", {"x": rows(30)}, state=current)
    current.restart(first)
    with pytest.raises(CallError):
        vm.run("main", {"x": rows(2)[:, :2]}, state=current)

    def fail(*_: object) -> NDArray:
        raise AssertionError("a buffer is allocated")

    monkeypatch.setattr("byoc_core.vm.state_values.new_buffer", fail)
    np.testing.assert_allclose(vm.run("main", {"x": rows(30)}, state=current), rows(30).sum(0))


BATCHES = """
@R.function
def main(x: R.Tensor(("b", 3)), total: R.Tensor(("b", 3)), log: R.Tensor(("p", "b"))):
    R.func_attr({"input_names": ("x", "total", "log"), "output_names": ("y", "new_total", "new_log"),
                 "states": (("total", "new_total"), ("log", "new_log", 0))})
    new_total = R.add(total, x)
    y = R.nn.relu(new_total)
    row = R.reshape(R.sum(x, axis=(1,)), shape=(1, "b"))
    new_log = R.concat(log, row, axis=0)
    return y, new_total, new_log
"""


@given(st.lists(st.integers(1, 3), min_size=2, max_size=2), st.booleans(), st.booleans())
def test_restarts_between_batches_take_over_sizes_and_values(
    batches: list[int], is_empty: bool, is_native: bool
) -> None:
    """A state of another batch, or without values, leaves nothing of the values before."""
    text = BATCHES.replace('R.reshape(R.sum(x, axis=(1,)), shape=(1, "b"))', 'R.reshape(s, shape=(1, "b"))')
    vm = VirtualMachine(build(text.replace("    row =", "    s = R.sum(x, axis=(1,))\n    row =")), native=is_native)
    current, source = vm.new_state("main"), vm.new_state("main")
    first, second = (np.arange(3.0 * batch, dtype=np.float32).reshape(batch, 3) for batch in batches)
    vm.run("main", {"x": first}, state=current)
    if not is_empty:
        vm.run("main", {"x": second + 1}, state=source)
    expected = vm.run("main", {"x": second}, state=source.fork())
    for _ in range(2):
        current.restart(source)
        assert current.length == (0 if is_empty else 1)
        np.testing.assert_array_equal(vm.run("main", {"x": second}, state=current), expected)
    if batches[0] != batches[1]:
        with pytest.raises(CallError):
            vm.run("main", {"x": first}, state=current)


def test_a_state_of_another_function_restarts_nothing() -> None:
    current, other = VirtualMachine(build()).new_state(), VirtualMachine(build(TEXT.replace("3", "4"))).new_state()
    with pytest.raises(CallError, match="is the state of another function"):
        current.restart(other)


LINEAR: tuple[tuple[int | str, ...], ...] = (("b", 3), ("b", "p+n"), ("n", "2*p+1"))


@given(b=st.integers(0, 3), n=st.integers(0, 3), p=st.integers(0, 3), change=st.integers(0, 5), by=st.integers(-2, 2))
def test_sums_of_symbols_are_bound_as_in_general(b: int, n: int, p: int, change: int, by: int) -> None:
    """Bound directly or in the general way: the same sizes, or an error of the general way."""
    sizes = {"b": b, "n": n, "p": p}
    shapes = [[evaluate(parse_dim(dim), sizes) for dim in shape] for shape in LINEAR]
    shapes[change // 2][change % 2] = max(0, shapes[change // 2][change % 2] + by)
    arrays = [np.empty(shape, np.float32) for shape in shapes]
    specs = [TensorSpec(f"x{k}", "float32", tuple(parse_dim(dim) for dim in shape)) for k, shape in enumerate(LINEAR)]
    terms = [[linear_terms(dim) for dim in spec.shape] for spec in specs]
    found = bind_linear([[each for each in shape if each is not None] for shape in terms], arrays, {"p": p})
    try:
        expected = bind_symbols(specs, arrays, sizes={"p": p})
    except CallError:
        assert found is None
    else:
        assert found == expected


def test_saved_states_continue_in_another_machine(vm: VirtualMachine, tmp_path: Path) -> None:
    vm["main"](rows(3))
    vm.state().save(tmp_path / "state.npz")
    after = vm["main"](rows(1))
    other = VirtualMachine(build())
    other.state().load(tmp_path / "state.npz")
    np.testing.assert_array_equal(other["main"](rows(1)), after)
    with np.load(tmp_path / "state.npz", allow_pickle=False) as stored:
        assert {name: stored[name].shape for name in stored.files} == {"total": (3,), "log": (3, 3)}


def test_loading_checks_the_values(tmp_path: Path) -> None:
    vm = VirtualMachine(build())
    vm["main"](rows(2))
    good = {"total": np.zeros(3, np.float32), "log": np.zeros((4, 3), np.float32)}
    path = tmp_path / "state.npz"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"total": good["total"]}, "has other states; got total, expected total, log"),
        ({**good, "log": good["log"].astype(np.float64)}, r"`log`: has another type; got float64\[4, 3\]"),
        ({**good, "log": np.zeros((4, 2), np.float32)}, "`log`: axis 1 has the wrong size"),
        ({**good, "total": np.zeros((3, 1), np.float32)}, "`total`: has another type"),
        ({**good, "log": np.array([{}], object)}, r"is not an \.npz file of arrays"),
    ]
    for arrays, message in cases:
        np.savez(path, **arrays)
        with pytest.raises((CallError, ArtifactError), match=message):
            vm.state().load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ArtifactError, match=r"is not an \.npz file of arrays"):
        vm.state().load(path)
    assert vm.state().length == 2
    small = vm.new_state(limit=3)
    np.savez(path, **good)  # type: ignore[arg-type]
    with pytest.raises(CallError, match="goes over the limit of rows; got 4, expected at most 3"):
        small.load(path)


def test_room_grows_by_doubling_up_to_the_limit() -> None:
    vm = VirtualMachine(build())
    state = vm.new_state(limit=40)
    nbytes = []
    for _ in range(40):
        vm.run("main", {"x": rows(1)}, state=state)
        nbytes.append(state.nbytes)
    assert sorted(set(nbytes)) == [12 + 12 * rows for rows in (16, 32, 40)]
    assert state.moved_nbytes == 12 * (16 + 32)
    with pytest.raises(CallError, match="`log`: goes over the limit of rows; got 41, expected at most 40"):
        vm.run("main", {"x": rows(1)}, state=state)
    assert state.length == 40
    state["log"]
    roomy = vm.new_state(capacity=100)
    for _ in range(100):
        vm.run("main", {"x": rows(1)}, state=roomy)
    assert (roomy.moved_nbytes, roomy.nbytes) == (0, 12 + 1200)


def test_bad_numbers_of_rows() -> None:
    vm = VirtualMachine(build())
    for options, message in (
        ({"capacity": -1}, "capacity: is no number of rows; got -1, expected an integer, 0 or more"),
        ({"limit": 0}, "limit: is no number of rows; got 0, expected an integer, 1 or more"),
        ({"limit": 2**31}, "limit: is over the maximum; got 2147483648, expected at most 2147483647"),
        ({"limit": 2**63, "capacity": 2**63}, "limit: is over the maximum"),
        ({"capacity": True}, "capacity: is no number of rows; got True"),
        ({"capacity": 5, "limit": 4}, "capacity: is over the limit; got 5, expected at most 4"),
    ):
        with pytest.raises(OptionsError, match=message):
            vm.new_state(**options)
    vm.new_state(limit=2**31 - 1)


def test_values_before_the_first_call() -> None:
    vm = VirtualMachine(build())
    with pytest.raises(CallError, match="has no value of `log` before the first call"):
        vm.state()["log"]
    with pytest.raises(CallError, match=r"has no `lag`; expected total, log\. Did you mean 'log'\?"):
        vm.state()["lag"]
    with pytest.raises(CallError, match="has no values to save before the first call"):
        vm.state().save("nowhere.npz")


def test_a_read_value_is_a_copy() -> None:
    vm = VirtualMachine(build())
    vm["main"](rows(1))
    vm.state()["log"][...] = 0
    np.testing.assert_array_equal(vm.state()["log"], rows(1))


def test_an_initial_constant(tmp_path: Path) -> None:
    module: IRModule = parse(
        "@R.function\ndef main(x: R.Tensor((2,)), h: R.Tensor((2,))):\n"
        '    R.func_attr({"input_names": ("x", "h"), "output_names": ("y", "g")})\n'
        "    g = R.add(x, h)\n    y = R.nn.relu(g)\n    return y, g\n"
    )
    constant = module.constants.add(np.array([10, 20], np.float32))
    states = [StateVariable("h", "g", initial=constant.digest)]
    module = module.with_function(declare_states(module["main"], states))
    executable = byoc_core.build(module, [])
    executable.save(tmp_path / "model.byoc")
    loaded = byoc_core.load(tmp_path / "model.byoc")
    for each in (executable, loaded):
        vm = VirtualMachine(each)
        x = np.array([1, 2], np.float32)
        assert np.asarray(vm["main"](x)).tolist() == [11, 22]
        assert np.asarray(vm["main"](x)).tolist() == [12, 24]
        vm.state().reset()
        assert np.asarray(vm["main"](x)).tolist() == [11, 22]


def test_functions_without_states() -> None:
    text = "@R.function\ndef main(x: R.Tensor((2,))):\n    y = R.nn.relu(x)\n    return y\n"
    vm = VirtualMachine(byoc_core.build(parse(text), []))
    foreign = VirtualMachine(build()).new_state()
    calls: list[Callable[[], object]] = [
        vm.state,
        vm.new_state,
        lambda: vm.run("main", {"x": np.zeros(2, np.float32)}, state=foreign),
    ]
    for call in calls:
        with pytest.raises(CallError, match="function `main`: has no states"):
            call()


def test_the_state_of_another_function_is_refused() -> None:
    other = VirtualMachine(build(TEXT.replace("(3,)", "(4,)").replace(", 3)", ", 4)"))).new_state()
    with pytest.raises(CallError, match="state of function `main`: is the state of another function"):
        VirtualMachine(build()).run("main", {"x": rows(1)}, state=other)
    same = VirtualMachine(build()).new_state()
    VirtualMachine(build()).run("main", {"x": rows(1)}, state=same)


def callback_machine(callback: Callable[[NDArray], None]) -> VirtualMachine:
    """Return a machine calling a callback in the middle of each call, after the new log is written."""

    def visit(x: NDArray, out: NDArray) -> None:
        callback(x)
        out[...] = x

    text = TEXT.replace(
        "seen = R.sum(new_log, axis=(0,))",
        'seen = R.call_dps_packed("visit", (new_total,), out_types=[R.Tensor((3,), "float32")])',
    )
    return VirtualMachine(build(text), externs={"visit": visit})


def test_a_state_serves_one_call_at_a_time() -> None:
    entered, leave = threading.Event(), threading.Event()

    def wait(_: NDArray) -> None:
        entered.set()
        assert leave.wait(30)

    vm = callback_machine(wait)
    worker = threading.Thread(target=vm["main"], args=(rows(1),))
    worker.start()
    assert entered.wait(30)
    message = (
        "state of function `main`: is in use by another call. "
        "Give each sequence of calls a state: new_state(), or fork()."
    )
    state = vm.state()
    uses: list[Callable[[], object]] = [
        lambda: vm["main"](rows(1)),
        state.reset,
        state.fork,
        lambda: state["log"],
        lambda: state.save("nowhere"),
    ]
    for use in uses:
        with pytest.raises(CallError) as caught:
            use()
        assert str(caught.value) == message
    leave.set()
    worker.join()
    assert state.length == 1
    vm.run("main", {"x": rows(1)}, state=vm.new_state())


def test_threads_with_states_of_their_own() -> None:
    vm = VirtualMachine(build())
    states = [vm.new_state() for _ in range(4)]
    failures: list[BaseException] = []

    def work(number: int, state: State) -> None:
        try:
            for step in range(50):
                vm.run("main", {"x": np.full((1, 3), number + step, np.float32)}, state=state)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(states)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for number, state in enumerate(states):
        np.testing.assert_array_equal(state["log"][:, 0], number + np.arange(50))


def test_a_failed_call_spoils_the_state(tmp_path: Path) -> None:
    fails = False

    def maybe_fail(_: NDArray) -> None:
        if fails:
            raise ValueError("no")

    vm = callback_machine(maybe_fail)
    vm["main"](rows(1))
    vm.state().save(tmp_path / "state.npz")
    fails = True
    with pytest.raises(ExecutionError):
        vm["main"](rows(1))
    fails = False
    message = (
        "is spoiled: an earlier call did not end: the function failed, or the process was forked meanwhile. Call reset"
    )
    for use in (lambda: vm["main"](rows(1)), vm.state().fork, lambda: vm.state()["log"]):
        with pytest.raises(CallError, match=message):
            use()
    vm.state().load(tmp_path / "state.npz")
    vm["main"](rows(1))
    assert vm.state().length == 2
    fails = True
    with pytest.raises(ExecutionError):
        vm["main"](rows(1))
    fails = False
    vm.state().reset()
    vm["main"](rows(1))
    assert vm.state().length == 1


def test_a_refused_call_leaves_the_state_alone() -> None:
    vm = VirtualMachine(build())
    vm["main"](rows(2))
    bad: list[Callable[[], object]] = [
        lambda: vm["main"](np.zeros((1, 4), np.float32)),
        lambda: vm["main"](np.zeros((1, 3), np.int32)),
        lambda: vm.run("main", {"x": rows(1)}, out={"seen": np.zeros(4, np.float32)}),
    ]
    for call in bad:
        with pytest.raises(CallError):
            call()
    vm["main"](rows(1))
    assert vm.state().length == 3


def test_a_refused_first_call_decides_no_sizes() -> None:
    text = """
@R.function
def main(x: R.Tensor(("b", 3)), h: R.Tensor(("b", 3))):
    R.func_attr({"input_names": ("x", "h"), "output_names": ("y", "g"), "states": (("h", "g"),)})
    g = R.add(x, h)
    y = R.nn.relu(g)
    return y, g
"""
    vm = VirtualMachine(build(text))
    with pytest.raises(CallError):
        vm.run("main", {"x": rows(2)}, out={"y": np.zeros((7, 7), np.float32)})
    vm["main"](rows(4))
    with pytest.raises(CallError, match="axis 0"):
        vm["main"](rows(2))
    vm.state().reset()
    vm["main"](rows(2))


def test_an_artifact_keeps_states(tmp_path: Path) -> None:
    executable = build()
    executable.save(tmp_path / "model.byoc")
    loaded = byoc_core.load(tmp_path / "model.byoc")
    assert loaded.to_bytes() == executable.to_bytes()
    assert [str(state) for state in loaded.states["main"]] == [
        "total -> new_total: float32[3], copies 12 bytes at 4",
        "log -> new_log: float32[p, 3] to [n+p, 3], copies 12*n bytes at 2",
    ]
    assert [spec.name for spec in loaded.functions["main"].inputs] == ["x"]
    vm = VirtualMachine(loaded)
    vm["main"](rows(2))
    assert vm.state().length == 2
    assert byoc_core.artifact.inspect(tmp_path / "model.byoc").functions == loaded.functions
