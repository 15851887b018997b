"""Random functions with states on devices equal the interpreter with the fewest copies; planted faults are found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine
from byoc_core.artifact import Executable
from byoc_core.errors import ProgramError
from byoc_core.ir import IRModule, Value, Var, state_values, states_of
from byoc_core.ir.structural import CALL_DPS_PACKED
from byoc_core.lower import domains, state_domains
from byoc_core.runtime.devices import MemoryDomain
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.vm import Program
from byoc_core.vm import verify as verify_program
from byoc_core.vm.device_run import DeviceRun
from byoc_core.vm.state import State
from hypothesis import HealthCheck, Phase, find, given, note, settings
from hypothesis import strategies as st

from core.tests.devices.device_states import CACHE, COUNTER, executable_of, npu, placed
from core.tests.devices.test_device_property import check_freed, machine_of
from core.tests.devices.toys import crossings
from core.tests.lower.test_states import TRAITS, functions, plain

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")


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
