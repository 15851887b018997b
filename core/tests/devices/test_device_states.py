"""States in the memory of devices: no copy of a state in a call, and the values of the interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.artifact import Executable
from byoc_core.errors import CallError, ExecutionError, ProgramError
from byoc_core.ir import ConstantStore, IRModule, Value, Var, state_values, states_of
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.ir.structural import CALL_DPS_PACKED
from byoc_core.lower import domains, lower, state_domains
from byoc_core.runtime.devices import DeviceTensor, MemoryDomain
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction
from byoc_core.runtime.protected_device import DeviceStream, ProtectedDevice
from byoc_core.vm import Program
from byoc_core.vm import verify as verify_program
from byoc_core.vm.device_run import DeviceRun
from byoc_core.vm.state import State
from byoc_core.vm.state_summary import summarise_states
from hypothesis import HealthCheck, Phase, find, given, note, settings
from hypothesis import strategies as st

from core.tests.devices.test_device_property import check_freed, machine_of
from core.tests.devices.toys import build_on, crossings, run_on, toy_of
from core.tests.lower.test_states import TRAITS, call, functions, module, plain, t
from core.tests.lower.view_modules import TraitModule

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")

X = np.array([1.5, -2.0, 0.25, 3.0], np.float32)


class OnDevices(TraitModule):
    """The functions of a trait module, each in the memory of the host or of a device.

    Args:
        places: the memory of the functions on devices, by name.
        failing: functions raising an error when the work runs.
    """

    def __init__(self, places: Mapping[str, MemoryDomain], failing: Sequence[str] = ()) -> None:
        super().__init__(TRAITS)
        self.places = dict(places)
        self.failing = failing

    def call_traits(self, name: str) -> CallTraits:
        return replace(super().call_traits(name), domain=self.places.get(name))

    def find_function(self, name: str) -> PackedFunction:
        function = super().find_function(name)
        if name not in self.places:
            return function

        def run(*arrays: NDArray) -> None:
            if name in self.failing:
                raise RuntimeError(f"{name} fails on the device")
            function.impl(*arrays)

        def enqueue(stream: DeviceStream, *tensors: DeviceTensor) -> None:
            stream.launch(run, tensors)

        return PackedFunction(name, enqueue)


def placed(source: IRModule, places: Mapping[str, MemoryDomain], failing: Sequence[str] = ()) -> IRModule:
    return source.with_attrs(**{EXTERNAL_MODULES: (OnDevices(places, failing),)})


def executable_of(source: IRModule) -> Executable:
    program = lower(source)
    verify_program(program)
    return Executable(program, source.attrs[EXTERNAL_MODULES], source.constants)


def on_npu(source: IRModule, device: ProtectedDevice, names: Sequence[str] = tuple(TRAITS)) -> VirtualMachine:
    return run_on(executable_of(placed(source, dict.fromkeys(names, device.domain))), device)


COUNTER = module(f"x: {t(4)}, h: {t(4)}", f"y = {call('add_in_place', 'h', 'x')}\nreturn y", '(("h", "y"),)')
CACHE = module(
    f"r: {t('n', 4)}, m: {t('p', 4)}",
    f"a = {call('next', 'r', shape=('n', 4))}\n"
    "m1 = R.concat(m, a, axis=0)\n"
    f"y = {call('next', 'm1', shape=('n+p', 4))}\n"
    "return m1, y",
    '(("m", "m1", 0),)',
)


def npu(**options: Any) -> ProtectedDevice:
    return ProtectedDevice("npu", is_lazy=True, **options)


def test_a_state_of_one_region_is_never_copied() -> None:
    device = npu()
    machine = on_npu(COUNTER, device)
    for _ in range(5):
        machine["main"](X)
    counts = device.counts
    # The inputs, and zeros before the first call.
    assert (counts.copies_in, counts.copies_out, counts.copies_within) == (5 + 1, 0, 0)
    np.testing.assert_array_equal(machine.state("main")["h"], 5 * X)
    assert device.counts.copies_out == 1
    (summary,) = summarise_states(machine._program, machine._program.functions[0])
    assert (summary.domain, summary.copied_nbytes) == ("npu", {})
    assert str(summary) == "h -> y: float32[4], in place, in npu"


def test_a_state_is_copied_on_the_device_if_the_function_refuses_aliasing() -> None:
    device = npu()
    source = parse(str(COUNTER.with_attrs(**{EXTERNAL_MODULES: ()})).replace("add_in_place", "add"))
    machine = on_npu(source, device)
    for _ in range(5):
        machine["main"](X)
    assert (device.counts.copies_in, device.counts.copies_out, device.counts.copies_within) == (6, 0, 5)
    np.testing.assert_array_equal(machine.state("main")["h"], 5 * X)


def test_rows_are_appended_on_the_device() -> None:
    """Old rows stay in place: a step writes the new rows only, and a larger buffer is filled by the device."""
    device = npu()
    machine = on_npu(CACHE, device)
    state = machine.new_state("main", capacity=4)
    rows = np.arange(4, dtype=np.float32).reshape(1, 4)
    for step in range(1, 41):
        y = machine.run("main", {"r": rows + step}, state=state)
        assert np.shape(y) == (step, 4)
        np.testing.assert_array_equal(y, np.concatenate([rows + i + 2 for i in range(1, step + 1)]))
    assert (device.counts.copies_in, device.counts.copies_out) == (40, 40)
    assert device.counts.copies_within == 2  # from 16 to 32, and from 32 to 64 rows
    assert state.moved_nbytes == (16 + 32) * 16
    assert state.length == 40


def test_forks_stay_on_the_device_and_restored_values_are_uploaded(tmp_path: Path) -> None:
    device = npu()
    machine = on_npu(COUNTER, device)
    state = machine.state("main")
    machine["main"](X)
    before = replace(device.counts)
    twin = state.fork()
    changes = (device.counts.copies_in - before.copies_in, device.counts.copies_out - before.copies_out)
    assert (changes, device.counts.copies_within - before.copies_within) == ((0, 0), 1)
    machine.run("main", {"x": X}, state=twin)
    state.save(tmp_path / "h.npz")
    assert device.counts.copies_out == 1
    twin.load(tmp_path / "h.npz")
    assert device.counts.copies_in == before.copies_in + 2  # an input, and the value of the file
    for found in (state, twin):
        np.testing.assert_array_equal(found["h"], X)
    live = device.counts.live_buffers
    state.reset()
    assert device.counts.live_buffers == live - 1
    machine["main"](X)
    np.testing.assert_array_equal(state["h"], X)


def test_the_initial_value_is_uploaded_by_the_first_call_and_after_a_reset() -> None:
    source = module(f"x: {t(4)}, h: {t(4)}", f"y = {call('add_in_place', 'h', 'x')}\nreturn y", '(("h", "y"),)')
    initial = np.array([1, 2, 3, 4], np.float32)
    digest = ConstantStore().add(initial).digest
    text = str(source.with_attrs(**{EXTERNAL_MODULES: ()})).replace('("h", "y")', f'("h", "y", "{digest}")')
    device = npu()
    found = executable_of(placed(parse(text), dict.fromkeys(TRAITS, device.domain)))
    machine = run_on(Executable(found.program, found.modules, {digest: initial}), device)
    for _ in range(2):
        machine["main"](X)
        machine["main"](X)
        np.testing.assert_array_equal(machine.state("main")["h"], initial + 2 * X)
        machine.state("main").reset()


def test_a_state_read_by_the_host_stays_where_copies_are_fewest() -> None:
    body = f"a = {call('next', 'h')}\nb = {call('add', 'a', 'x')}\nreturn b"
    source = module(f"x: {t(4)}, h: {t(4)}", body, '(("h", "b"),)')
    device = npu()
    for names, copies, place in ((("next", "add"), (1, 0), "npu"), (("add",), (2, 1), "host"), ((), (0, 0), "host")):
        executable = executable_of(placed(source, dict.fromkeys(names, device.domain)))
        assert crossings(executable.program) == copies
        assert executable.states["main"][0].domain == place


def test_out_of_memory_is_an_error_and_later_calls_work() -> None:
    rows = np.ones((20, 4), np.float32)

    def steps(machine: VirtualMachine, state: State) -> NDArray:
        for _ in range(3):
            machine.run("main", {"r": rows}, state=state)
        twin = state.fork()
        y: NDArray = np.asarray(machine.run("main", {"r": rows}, state=twin)) + np.sum(twin["m"])
        return y

    device = npu()
    machine = on_npu(CACHE, device)
    first = device.counts.allocations
    want = steps(machine, machine.new_state("main"))
    used = device.counts.allocations - first
    assert used >= 4
    for number in range(used):
        device = npu()
        machine = on_npu(CACHE, device)
        device.failing_allocation = device.counts.allocations + number
        state = machine.new_state("main")
        with pytest.raises(ExecutionError, match="device `npu:0` cannot allocate"):
            steps(machine, state)
        state.reset()
        np.testing.assert_array_equal(steps(machine, state), want)
        del machine, state
        check_freed([device])


def test_a_failure_on_the_device_spoils_the_state_and_a_reset_repairs_it() -> None:
    device = npu()
    module_on = OnDevices(dict.fromkeys(TRAITS, device.domain), failing=[])
    source = COUNTER.with_attrs(**{EXTERNAL_MODULES: (module_on,)})
    machine = run_on(executable_of(source), device)
    machine["main"](X)
    module_on.failing = ["add_in_place"]
    with pytest.raises(ExecutionError, match="add_in_place fails on the device"):
        machine["main"](X)
    module_on.failing = []
    state = machine.state("main")
    for use in (partial(machine["main"], X), partial(state.__getitem__, "h"), state.fork):
        with pytest.raises(CallError, match="is spoiled"):
            use()
    state.reset()
    machine["main"](X)
    np.testing.assert_array_equal(state["h"], X)
    del machine, state, use
    check_freed([device])


class FailingCopies(ProtectedDevice):
    """A device with failing copies of one kind."""

    failing_copy = ""

    def _check(self, kind: str) -> None:
        if kind == self.failing_copy:
            raise RuntimeError(f"{kind} fails")

    def copy_in(self, source: NDArray, target: DeviceTensor, stream: object) -> None:
        self._check("copy_in")
        super().copy_in(source, target, stream)

    def copy_out(self, source: DeviceTensor, target: NDArray, stream: object) -> None:
        self._check("copy_out")
        super().copy_out(source, target, stream)

    def copy_within(self, source: DeviceTensor, target: DeviceTensor, stream: object) -> None:
        self._check("copy_within")
        super().copy_within(source, target, stream)


def test_failures_of_copies_travel_and_leave_the_state_as_it_was(tmp_path: Path) -> None:
    device = FailingCopies("npu", is_lazy=True)
    machine = on_npu(COUNTER, device)
    state = machine.state("main")
    machine["main"](X)
    state.save(tmp_path / "h.npz")
    machine["main"](X)
    uses: list[tuple[str, Any]] = [
        ("copy_out", partial(state.__getitem__, "h")),
        ("copy_out", partial(state.save, tmp_path / "other.npz")),
        ("copy_in", partial(state.load, tmp_path / "h.npz")),
        ("copy_within", state.fork),
    ]
    for kind, use in uses:
        device.failing_copy = kind
        with pytest.raises(ExecutionError, match=f"device `npu:0` failed with RuntimeError: {kind} fails"):
            use()
        device.failing_copy = ""
        np.testing.assert_array_equal(state["h"], 2 * X)
    assert not (tmp_path / "other.npz").exists()
    del machine, state, uses, use
    check_freed([device])


def test_eight_threads_with_sequences_of_their_own() -> None:
    device = ProtectedDevice("npu", max_delay=0.0005)
    machine = on_npu(CACHE, device)

    def sequence(machine: VirtualMachine, seed: int) -> None:
        rng = np.random.default_rng(seed)
        state = machine.new_state("main")
        rows = np.zeros((0, 4), np.float32)
        for _ in range(6):
            new = rng.integers(-9, 9, (int(rng.integers(0, 9)), 4)).astype(np.float32)
            rows = np.concatenate([rows, new + 1])
            np.testing.assert_array_equal(machine.run("main", {"r": new}, state=state), rows + 1)
        np.testing.assert_array_equal(state["m"], rows)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(partial(sequence, machine), range(8)))
    del machine
    check_freed([device])


def test_a_state_belongs_to_its_device() -> None:
    executable = executable_of(placed(COUNTER, dict.fromkeys(TRAITS, MemoryDomain("npu"))))
    first, second = npu(), ProtectedDevice("npu", 1, is_lazy=True)
    state = run_on(executable, first).new_state("main")
    with pytest.raises(CallError) as caught:
        run_on(executable, second).run("main", {"x": X}, state=state)
    assert str(caught.value) == (
        "state of function `main`, `h`: lies on another device than the machine's; got npu:0, expected npu:1. "
        "save() the values, and load() them into a state of the machine."
    )


def test_a_session_profiles_states_on_devices_and_leaves_its_own_alone() -> None:
    device = npu()
    text = f"""
    @R.function
    def main(x: {t(4)}, h: {t(4)}):
        R.func_attr({{"input_names": ("x", "h"), "output_names": ("y", "k"), "states": (("h", "k"),)}})
        k = R.add(h, x)
        y = R.multiply(k, k)
        return y, k
    """
    session = byoc_core.Session(
        build_on(byoc_core.script.parse(text.replace("\n    ", "\n")), toy_of(device)), device=device
    )
    session.run(None, {"x": X})
    session.profile({"x": X}, num_calls=3)
    np.testing.assert_array_equal(session.state["h"], X)


# -- random functions -----------------------------------------------------------------------------------------

Places = dict[str, str]


def fewest_copies(source: IRModule, places: Mapping[str, str]) -> int:
    """Return the fewest copies between host and devices in a call, over all places of the states: brute force.

    A value exists where its producer writes, and is needed where a reader reads; rows are appended where the state is;
    two devices meet in the memory of the host.
    """
    main = source["main"]
    states = [state_values(main, state) for state in states_of(main)]
    outputs = [main.output_names.index(state.output) for state in states_of(main)]

    def count(choice: Sequence[str]) -> int:
        homes: dict[Value, str] = dict(zip((old for old, _ in states), choice, strict=True))
        needs: set[tuple[Value, str]] = set()
        for binding in main.bindings:
            if binding.op is CALL_DPS_PACKED:
                where = places.get(str(binding.attrs["symbol"]), "host")
            else:
                old = next((old for old, new in states if new is binding.result), None)
                where = homes[old] if old is binding.operands[0] and old is not None else "host"
            needs |= {(operand, where) for operand in binding.operands if isinstance(operand, Var)}
            homes |= dict.fromkeys(binding.results, where)
        wanted = dict(zip(outputs, choice, strict=True))
        needs |= {(v, wanted.get(i, "host")) for i, v in enumerate(main.results) if isinstance(v, Var)}
        needs |= {(v, "host") for v, w in needs if "host" not in (w, homes.get(v, "host")) and w != homes[v]}
        return sum(homes.get(value, "host") != where for value, where in needs)

    return min(map(count, product(("host", *sorted(set(places.values()))), repeat=len(states))))


Devices = list[ProtectedDevice]


@st.composite
def placements(draw: st.DrawFn) -> tuple[Places, Devices]:
    """Return the place of each function on a device, and the devices."""
    places = {
        name: place for name in TRAITS if (place := draw(st.sampled_from(("host", "npu", "npu", "gpu")))) != "host"
    }
    devices = [
        ProtectedDevice(name, alignment=alignment, is_lazy=True, host_accessible=draw(st.integers(0, 3)) == 0)
        for name, alignment in (("npu", 64), ("gpu", 256))
        if name in places.values()
    ]
    return places, devices


def compiled(source: IRModule, places: Places, devices: Devices) -> Executable:
    found = {device.domain.name: device.domain for device in devices}
    return executable_of(placed(source, {name: found[place] for name, place in places.items()}))


def walk(
    machine: VirtualMachine, source: IRModule, steps: Sequence[tuple[str, int]], path: Path
) -> Iterator[tuple[Any, Any]]:
    """Yield found and expected values of a random walk: calls, and changes of the state between calls."""
    main = source["main"]
    interpreted = plain(source)
    pairs = {state.output: state.input for state in states_of(main)}

    def initial() -> dict[str, NDArray]:
        ranks = {name: len(p.type.shape or ()) for name, p in zip(main.input_names, main.params, strict=True)}  # type: ignore[union-attr]
        return {name: np.zeros((4,) if ranks[name] == 1 else (0, 4), np.float32) for name in pairs.values()}

    state, values = machine.new_state("main"), initial()
    saved: dict[str, NDArray] | None = None
    has_values = False
    rng = np.random.default_rng(0)
    for change, n in steps:
        x, r = rng.integers(-3, 4, 4).astype(np.float32), rng.integers(-3, 4, (n, 4)).astype(np.float32)
        results = byoc_core.transform.evaluate_function(
            interpreted, "main", [x, r, *(values[name] for name in main.input_names[2:])]
        )
        named = {name: np.asarray(v) for name, v in zip(main.output_names, results, strict=True)}
        found = machine.run("main", {"x": x, "r": r}, state=state)
        yield (
            list(found) if isinstance(found, tuple) else [found],
            [value for name, value in named.items() if name not in pairs],
        )
        values = {pairs[name]: value for name, value in named.items() if name in pairs}
        has_values = True
        match change:
            case "fork":
                state = state.fork()
            case "reset":
                state.reset()
                values, has_values = initial(), False
            case "save":
                state.save(path)
                saved = values
            case "load" if saved is not None:
                state.load(path)
                values = saved
        if has_values:
            yield [state[name] for name in values], list(values.values())


STEPS = st.lists(
    st.tuples(st.sampled_from(("nothing", "nothing", "fork", "reset", "save", "load")), st.integers(0, 3)),
    min_size=1,
    max_size=5,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states") / "state.npz"


@given(functions(), placements(), STEPS)
@settings(deadline=None)
def test_random_functions_equal_the_interpreter_with_the_fewest_copies(
    path: Path, source: IRModule, placement: tuple[Places, Devices], steps: list[tuple[str, int]]
) -> None:
    note(str(source))
    places, devices = placement
    note(str(places))
    executable = compiled(source, places, devices)
    fewest = fewest_copies(source, places)
    if any(device.domain.host_accessible for device in devices):
        assert sum(crossings(executable.program)) <= fewest
    else:
        assert sum(crossings(executable.program)) == fewest
    machine = machine_of(executable, devices)
    for have, want in walk(machine, source, steps, path):
        assert len(have) == len(want)
        for left, right in zip(have, want, strict=True):
            np.testing.assert_array_equal(left, right)
    del machine
    check_freed(devices)


def fails(source: IRModule, placement: tuple[Places, Devices], path: Path) -> bool:
    """Return whether two calls fail, give other values than the interpreter, or make more copies than needed."""
    places, devices = placement
    try:
        executable = compiled(source, places, devices)
        visible = any(device.domain.host_accessible for device in devices)
        if not visible and sum(crossings(executable.program)) > fewest_copies(source, places):
            return True
        machine = machine_of(executable, devices)
        steps = [("fork", 2), ("nothing", 1)]
        return not all(
            np.array_equal(left, right)
            for have, want in walk(machine, source, steps, path)
            for left, right in zip(have, want, strict=True)
        )
    except Exception:
        return True


def lowest_place(num_states: int, candidates: Sequence[int], count_copies: object, _: int) -> tuple[int, ...]:
    return (candidates[0],) * num_states


def aliased(self: State) -> State:
    """Fork without a copy."""
    twin = State.__new__(State)
    twin.__dict__.update(self.__dict__)
    return twin


MUTANTS: dict[str, tuple[object, str, object]] = {
    "all states lie in the memory of the host": (
        domains,
        "choose_state_domains",
        lambda num_states, candidates, count_copies, num_counts: (0,) * num_states,
    ),
    "all states lie on the first device": (domains, "choose_state_domains", lowest_place),
    "the old value is never copied to the new value": (
        DeviceRun,
        "copy_within",
        lambda self, domain, instruction, source, target: None,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_core_is_found_by_a_small_case(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, broken)
    source, _ = find(
        st.tuples(functions(), placements()),
        lambda case: fails(case[0], case[1], path),
        settings=settings(
            max_examples=150,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
        random=Random(0),
    )
    assert len(source["main"].bindings) <= 6, str(source)


@given(functions(), placements())
@settings(deadline=None)
def test_without_time_to_try_all_choices_no_move_of_one_state_saves_a_copy(
    source: IRModule, placement: tuple[Places, Devices]
) -> None:
    places, devices = placement
    counts: list[tuple[int, tuple[int, ...], Callable[[tuple[int, ...]], int], Sequence[int]]] = []

    def choose(
        num_states: int, candidates: Sequence[int], count_copies: Callable[[tuple[int, ...]], int], _: int
    ) -> tuple[int, ...]:
        found = state_domains.choose_state_domains(num_states, candidates, count_copies, 0)
        counts.append((count_copies(found), found, count_copies, candidates))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(domains, "choose_state_domains", choose)
        compiled(source, places, devices)
    for least, found, count_copies, candidates in counts:
        for index, domain in product(range(len(found)), (0, *candidates)):
            assert count_copies((*found[:index], domain, *found[index + 1 :])) >= least


def test_rows_appended_by_the_host_would_be_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    places = dict.fromkeys(TRAITS, "npu")
    assert sum(crossings(compiled(CACHE, places, [npu()]).program)) == fewest_copies(CACHE, places) == 2
    monkeypatch.setattr(domains, "_is_append", lambda binding, olds: False)
    assert sum(crossings(compiled(CACHE, places, [npu()]).program)) > 2


# -- laws -----------------------------------------------------------------------------------------------------


def state_program(**changes: Any) -> Program:
    program = executable_of(placed(COUNTER, {"add_in_place": MemoryDomain("npu")})).program
    return replace(program, functions=(replace(program.functions[0], **changes),), extern_domains=(1,))


def test_a_state_lies_in_one_domain() -> None:
    verify_program(state_program())
    with pytest.raises(ProgramError) as caught:
        verify_program(state_program(domains=(0, 1, 0, 1)))
    assert str(caught.value) == (
        "function `main`, register o0: has a new value of a state in other memory than the old value; "
        "got host, expected npu"
    )
