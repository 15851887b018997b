"""Level 4 continues after crashes and hangs, and accepts roundings."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_conformance import Runner, Status, Subject, SubjectSpec, find_item
from byoc_conformance.examples import Example
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promises.l4_behaviour import thread_numbers
from byoc_conformance.promises.l4_behaviour.memory import require_steady
from byoc_conformance.promises.l4_behaviour.running import difference, other_inputs, resize_first
from byoc_core.errors import ExecutionError
from byoc_core.ir import IRModule, tensor
from byoc_core.ops import default_ops
from byoc_core.ops.cases import new_function


@pytest.mark.parametrize(
    ("fault", "broken", "status", "text"),
    [
        ("crashes-on-nan", "nan", Status.CRASHED, "the process ended with signal SIGABRT"),
        ("hangs-on-infinity", "infinite", Status.HUNG, "no result within 9 s"),
    ],
)
def test_the_test_after_a_crash_or_a_hang_is_run(
    fakenpu: str, monkeypatch: pytest.MonkeyPatch, fault: str, broken: str, status: Status, text: str
) -> None:
    monkeypatch.setenv("FAKENPU_FAULT", fault)
    with Runner(SubjectSpec(fakenpu), patience=0.3) as runner:
        outcomes = {case: runner.run(find_item(f"L4-any-number[{case}]")).outcome for case in ("tiny", broken, "mixed")}
    assert outcomes[broken].status is status
    assert outcomes[broken].text.splitlines()[0] == f"while `L4-any-number[{broken}]` ran: {text}"
    assert {outcomes["tiny"].status, outcomes["mixed"].status} == {Status.PASSED}


@pytest.fixture(scope="module")
def host() -> Subject:
    """The core's own backend."""
    return Subject(SubjectSpec("host"))


@pytest.fixture
def example() -> Example:
    """``exp`` of a matrix."""
    op = default_ops()["exp"]
    function, _ = new_function(op, [tensor((2, 3))], {}, "single_exp_0")
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    return Example("single exp 0", "single", IRModule({function.name: function}), function.name, (x,))


def test_another_rounding_is_no_difference(host: Subject, example: Example) -> None:
    expected = example.expected()
    other = tuple(np.nextafter(array, np.float32(0)) for array in expected)
    assert difference(host, example, example.inputs, other, expected) == ""


def test_another_number_is_a_difference(host: Subject, example: Example) -> None:
    expected = example.expected()
    other = tuple(array + np.float32(0.01) for array in expected)
    assert difference(host, example, example.inputs, other, expected).startswith(
        "output `output0`: error 0.01, more than "
    )


def test_another_shape_is_a_difference(host: Subject, example: Example) -> None:
    (expected,) = example.expected()
    text = difference(host, example, example.inputs, (expected.reshape(-1),), (expected,))
    assert text == "the results have other types: float32[6]"


def test_other_inputs_have_the_same_elements(example: Example) -> None:
    (old,), (new,) = example.inputs, other_inputs(example)
    assert not np.array_equal(old, new)
    assert np.array_equal(np.sort(old, axis=None), np.sort(new, axis=None))


def test_sizes_are_changed_wherever_they_stand(host: Subject, example: Example) -> None:
    (empty,) = resize_first(host, [example], 0)
    assert (empty.name, [array.shape for array in empty.expected()]) == ("single exp 0 on [0, 3]", [(0, 3)])


def test_what_is_kept_each_time_is_a_leak() -> None:
    leaked: list[bytes] = []

    def work() -> int:
        leaked.append(bytes(1000))
        return 1

    with pytest.raises(FailedError, match=r"^Python's memory keeps growing by 1\d\d\d bytes with every call$"):
        require_steady(work, rounds=50, label="call")


def test_what_comes_to_an_end_is_no_leak() -> None:
    """A cache growing in each phase of a measurement, and full at the repeated measurement of memory."""
    cached: list[bytes] = []
    calls = 0

    def work() -> int:
        nonlocal calls
        calls += 1
        if calls <= 1250:  # 5 phases of 200 calls for the process, then 5 of 50 for Python
            cached.append(bytes(100))
        return 1

    require_steady(work, rounds=50, label="call")
    assert calls == 1500  # Python's memory was measured twice


def test_what_is_kept_once_is_no_leak() -> None:
    cached: list[bytes] = []

    def work() -> int:
        if len(cached) < 100:
            cached.append(bytes(100_000))
        return 1

    require_steady(work, rounds=50, label="call")


def test_large_calls_that_all_fail_are_not_covered(fakenpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: object) -> object:
        raise ExecutionError("npu", "is out of memory")

    monkeypatch.setattr(thread_numbers, "call_function", failing)
    subject = Subject(SubjectSpec(fakenpu))
    for promise in thread_numbers.PROMISES:
        with pytest.raises(NotCoveredError, match=r"^every call of a large case fails$"):
            promise.check(subject, promise.cases()[0])
