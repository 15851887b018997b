"""The kit is itself proven: a good backend passes, and each broken backend fails in the right place.

Here a fault of each promise is tried, and ``nox -s thorough`` tries all. Failures *only* in the right place are shown
by :mod:`conformance.tests.fault_matrix` for all faults; ``nox -s thorough`` shows this for a few, and for odd but
permitted behaviour.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from byoc_conformance import Level, Runner, Status, SubjectSpec, all_items, all_promises
from byoc_core.isolation import ForkServer
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases

from conformance.tests.fakenpu_install import FAKES
from conformance.tests.fault_matrix import EXAMPLES, broken_promises, promise_of

sys.path.insert(0, str(FAKES))

from fakenpu.faults import FAULTS
from fakenpu.runtime import KERNELS

IS_THOROUGH = os.environ.get("BYOC_EXAMPLES") == "thorough"
CAUGHT = [fault for fault in FAULTS if FAULTS[fault].caught_by]
PERMITTED = [fault for fault in FAULTS if not FAULTS[fault].caught_by]
"""Odd, but permitted for a backend."""


def one_for_each_promise() -> list[str]:
    """Return the first fault to be caught by each promise, and each fault found in a stranger's backend."""
    first: dict[str, str] = {}
    for fault in CAUGHT:
        for promise in sorted(FAULTS[fault].caught_by):
            first.setdefault(promise, fault)
    return [fault for fault in CAUGHT if fault in first.values() or fault in STRANGERS]


STRANGERS = (
    *("negative-axis", "several-axes", "overhanging-window", "backwards-past-the-end", "sizes-of-the-first-call"),
    *("uses-a-second-thread", "writes-its-input", "flushes-its-input"),
)
"""Faults of a real backend once missed by the kit."""
TRIED = CAUGHT if IS_THOROUGH else one_for_each_promise()
ALONE = (
    "allows-any-core",
    "refuses-what-it-claims",
    "pickles-its-payload",
    "writes-inputs",
    "last-lane",
    *PERMITTED,
)


@pytest.fixture
def break_fakenpu(
    fakenpu: str, fakenpu_metadata: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], frozenset[str]]:
    """Return a function breaking the installed backend, and returning the promises expected to catch the fault."""

    def break_it(fault: str) -> frozenset[str]:
        monkeypatch.setenv("FAKENPU_FAULT", fault)
        fakenpu_metadata(**FAULTS[fault].metadata)
        return FAULTS[fault].caught_by

    return break_it


@pytest.mark.parametrize("fault", TRIED)
def test_a_fault_is_caught(fault: str, break_fakenpu: Callable[[str], frozenset[str]], fork_server: ForkServer) -> None:
    caught_by = break_fakenpu(fault)
    tried = [item for item in all_items() if promise_of(item) in caught_by]
    # Of ops those that it has: what it declines costs time, and is nobody's fault.
    own = [item for item in tried if item.case not in canonical_cases(default_ops()) or item.case in KERNELS]
    assert broken_promises(own, fork_server).keys() == caught_by


@pytest.mark.skipif(not IS_THOROUGH, reason="`nox -s thorough` makes these runs of the whole kit")
@pytest.mark.parametrize("fault", ALONE)
def test_a_fault_is_caught_by_its_own_test_alone(
    fault: str, break_fakenpu: Callable[[str], frozenset[str]], fork_server: ForkServer
) -> None:
    break_fakenpu(fault)
    broken = broken_promises(all_items(), fork_server)
    assert FAULTS[fault].is_caught_by(broken), broken


def test_a_backend_of_scalars_alone_behaves(
    break_fakenpu: Callable[[str], frozenset[str]], fork_server: ForkServer
) -> None:
    break_fakenpu("takes-scalars")
    behaviour = [item for item in all_items() if item.promise.level is Level.L4]
    assert broken_promises(behaviour, fork_server) == {}


def test_every_promise_has_a_fault() -> None:
    names = {f"{promise.level}-{promise.name}" for promise in all_promises()}
    assert frozenset[str]().union(*(fault.caught_by for fault in FAULTS.values())) == names


def test_a_good_backend_keeps_every_promise_and_is_covered(fakenpu: str, fork_server: ForkServer) -> None:
    """Each promise is tested on something: green by declining does not count."""
    broken, passed = [], set()
    with Runner(SubjectSpec(fakenpu, examples=EXAMPLES), fork_server=fork_server) as runner:
        for item in all_items():
            result = runner.run(item)
            if result.outcome.status.is_broken:
                broken.append((item.id, result.outcome))
            elif result.outcome.status is Status.PASSED:
                passed.add(promise_of(item))
    assert broken == []
    promises = {f"{promise.level}-{promise.name}" for promise in all_promises()}
    on_devices = {name for name in promises if name.startswith("L4-device-")}
    assert promises - passed == {"L2-layouts", "L2-schedules", "L4-lowered-accesses"} | on_devices  # see the next tests


@pytest.mark.parametrize(
    ("fault", "promise", "expected"),
    [
        ("states-orders", "L2-layouts", {"nn.avg_pool2d", "add", "exp", "nn.softmax", "concat"}),
        ("names-schedules", "L2-schedules", {"add"}),
    ],
)
def test_a_good_backend_with_an_optional_hook_is_covered(
    fault: str,
    promise: str,
    expected: set[str],
    break_fakenpu: Callable[[str], frozenset[str]],
    fork_server: ForkServer,
) -> None:
    break_fakenpu(fault)
    outcomes = {}
    with Runner(SubjectSpec("fakenpu", examples=EXAMPLES), fork_server=fork_server) as runner:
        for item in all_items():
            if promise_of(item) == promise and item.case in KERNELS:
                outcomes[item.case] = runner.run(item).outcome
    assert {outcome.status for outcome in outcomes.values()} == {Status.PASSED, Status.NOT_COVERED}, outcomes
    assert expected <= {case for case, outcome in outcomes.items() if outcome.status is Status.PASSED}


def test_a_good_backend_with_lowered_functions_is_covered(
    break_fakenpu: Callable[[str], frozenset[str]], fork_server: ForkServer
) -> None:
    break_fakenpu("lowers-additions")
    names = {"L1-codegen-functions", "L1-native-declared", "L3-save-and-load", "L4-lowered-accesses"}
    items = [item for item in all_items() if promise_of(item) in names]
    with Runner(SubjectSpec("fakenpu", examples=EXAMPLES), fork_server=fork_server) as runner:
        outcomes = {promise_of(item): runner.run(item).outcome for item in items}
    assert {name: outcome.status for name, outcome in outcomes.items()} == dict.fromkeys(names, Status.PASSED), outcomes


@pytest.mark.parametrize("fault", ["runs-on-a-device", "copies-to-a-second-device", "has-pools-on-a-device"])
def test_a_good_backend_with_a_device_is_covered(
    fault: str, break_fakenpu: Callable[[str], frozenset[str]], fork_server: ForkServer
) -> None:
    break_fakenpu(fault)
    names = {
        *("L3-save-and-load", "L4-device-copies", "L4-device-accesses", "L4-device-memory-error"),
        *("L4-re-entrant", "L4-memory-steady", "L4-device-several"),
        *(["L4-device-pools"] if fault == "has-pools-on-a-device" else ()),
    }
    items = [item for item in all_items() if promise_of(item) in names]
    with Runner(SubjectSpec("fakenpu", examples=EXAMPLES), fork_server=fork_server) as runner:
        outcomes = {promise_of(item): runner.run(item).outcome for item in items}
    assert {name: outcome.status for name, outcome in outcomes.items()} == dict.fromkeys(names, Status.PASSED), outcomes
