"""Backends with raising hooks: the build continues without these and warns; an error only on the user's request."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import CompileContext, Estimate, Status
from byoc_core.backend.hooks import hookimpl
from byoc_core.errors import HookError, OptionsError, PartitionError, PatternError
from byoc_core.ir import Binding, Function, IRModule
from byoc_core.partitioning import ByCost, PartitionOptions, RunCodegen, partition
from byoc_core.pattern import CompositePattern, Rejection, Support, is_op, wildcard

from core.tests.conftest import FakeBackend

MODULE = R.parse("""
def main(x: R.Tensor((2, 4))):
    a = R.nn.relu(x)
    b = R.add(a, a)
    c = R.tanh(b)
    d = R.multiply(c, c)
    return d
""")
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
EXPECTED = np.tanh(2 * np.maximum(X, 0)) ** 2
OPS = ("nn.relu", "add", "tanh", "multiply")
ALL_HOOKS = (
    "byoc_compile_status",
    "byoc_prepare",
    "byoc_patterns",
    "byoc_supports",
    "byoc_partition",
    "byoc_estimate",
    "byoc_codegen",
)
WHOLE = frozenset({"byoc_compile_status", "byoc_prepare", "byoc_patterns", "byoc_partition"})
"""The hooks speaking for the whole backend."""


def divide_by_rank(*_: object) -> Any:
    """Raise the error of a slip in a backend."""
    return 1 % len(())


class FailingBackend(FakeBackend):
    """A backend with a raising hook.

    Args:
        name: the backend's name.
        hook: the hook.
        raises: raises.
        on: the op with the error, for hooks called about ops; all ops by default.
    """

    def __init__(
        self, name: str, hook: str, raises: Callable[[], Any] = divide_by_rank, on: str = "", **options: Any
    ) -> None:
        super().__init__(name, None, **options)
        self._hook, self._raises, self._on = hook, raises, on

    def _fail(self, hook: str, *bindings: Binding) -> None:
        if hook == self._hook and (not self._on or any(b.op.name == self._on for b in bindings)):
            self._raises()

    @hookimpl
    def byoc_compile_status(self) -> Status:
        self._fail("byoc_compile_status")
        return super().byoc_compile_status()

    @hookimpl
    def byoc_prepare(self, module: IRModule) -> IRModule:
        self._fail("byoc_prepare")
        return super().byoc_prepare(module)

    @hookimpl
    def byoc_patterns(self) -> Sequence[CompositePattern]:
        self._fail("byoc_patterns")
        return super().byoc_patterns()

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        self._fail("byoc_supports", binding)
        return super().byoc_supports(binding)

    @hookimpl
    def byoc_estimate(self, function: Function) -> Estimate | None:
        self._fail("byoc_estimate", *function.walk())
        return Estimate(1e-9)

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> Any:
        self._fail("byoc_codegen", *(binding for function in functions for binding in function.walk()))
        return super().byoc_codegen(functions, context)


class ClaimingBackend(FailingBackend):
    """The same with a raising partition."""

    @hookimpl
    def byoc_partition(self, module: IRModule) -> IRModule:
        self._fail("byoc_partition")
        return module


def new_backend(name: str, hook: str, raises: Callable[[], Any] = divide_by_rank, on: str = "") -> FailingBackend:
    return (ClaimingBackend if hook == "byoc_partition" else FailingBackend)(name, hook, raises, on)


def build(*backends: object, **options: Any) -> tuple[byoc_core.Executable, str]:
    """Return the built executable, after a run beside numpy, and the warnings."""
    policy = ByCost() if options.pop("by_cost", False) else None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        executable = byoc_core.build(MODULE, backends, policy=policy, **options)
    np.testing.assert_allclose(byoc_core.VirtualMachine(executable)["main"](X), EXPECTED, rtol=1e-6)
    return executable, "\n".join(str(warning.message) for warning in told)


def outcomes(executable: byoc_core.Executable) -> dict[str, str]:
    return {row["op"]: row["outcome"] for row in executable.report_data["ops"]}


@pytest.mark.parametrize("hook", ALL_HOOKS)
def test_another_backend_takes_what_a_failing_hook_was_asked_about(hook: str) -> None:
    by_cost = hook == "byoc_estimate"
    executable, told = build(new_backend("bad", hook), FakeBackend("good", None), by_cost=by_cost)
    assert set(outcomes(executable).values()) == {"good"} if not by_cost else {"good", "host"}
    assert hook in told
    assert "raised ZeroDivisionError" in told
    (failure,) = executable.report_data["hook_failures"]
    assert (failure["backend"], failure["hook"]) == ("bad", hook)
    assert "core.tests.test_driver_hook_failures:" in failure["traceback"]
    assert "in divide_by_rank" in failure["traceback"]
    assert bool(failure["ops"]) == (hook not in WHOLE)
    assert f"bad: hook {hook} raised ZeroDivisionError" in executable.report()
    reasons = [reason for row in executable.report_data["ops"] for reason in row["reasons"]]
    codes = {reason["code"] for reason in reasons if reason["backend"] == "bad"}
    assert codes == ({"unavailable"} if hook == "byoc_compile_status" else {"hook-failed"})
    assert all(hook in reason["text"] for reason in reasons if reason["backend"] == "bad")


@pytest.mark.parametrize("hook", ALL_HOOKS)
def test_the_host_takes_what_two_failing_backends_leave(hook: str) -> None:
    backends = [new_backend("aone", hook), new_backend("btwo", hook)]
    executable, told = build(*backends, by_cost=hook == "byoc_estimate")
    assert set(outcomes(executable).values()) == {"host"}
    assert [failure["backend"] for failure in executable.report_data["hook_failures"]] == ["aone", "btwo"]
    assert "`aone`" in told
    assert "`btwo`" in told


@pytest.mark.parametrize("options", [{"strict": True}, {"fallback": "error"}], ids=["strict", "fallback"])
@pytest.mark.parametrize("hook", ALL_HOOKS)
def test_a_failing_hook_is_an_error_where_the_user_wants_it(hook: str, options: dict[str, Any]) -> None:
    with pytest.raises(HookError) as caught:
        build(new_backend("bad", hook), FakeBackend("good", None), by_cost=hook == "byoc_estimate", **options)
    assert hook in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("hook", ALL_HOOKS)
@pytest.mark.parametrize("passing", [KeyboardInterrupt, MemoryError])
def test_what_is_no_fault_of_the_backend_passes(hook: str, passing: type[BaseException]) -> None:
    def fail() -> None:
        raise passing

    with pytest.raises(passing):
        build(new_backend("bad", hook, fail), by_cost=hook == "byoc_estimate")


@pytest.mark.parametrize("hook", ALL_HOOKS)
def test_a_hook_that_wants_to_end_the_process_fails(hook: str) -> None:
    def fail() -> None:
        raise SystemExit(0)

    executable, _ = build(new_backend("bad", hook, fail), by_cost=hook == "byoc_estimate")
    assert executable.report_data["hook_failures"][0]["text"] == "raised SystemExit: 0"


@pytest.mark.parametrize("hook", ["byoc_supports", "byoc_estimate"])
def test_a_hook_that_fails_for_one_op_leaves_the_others_with_the_backend(hook: str) -> None:
    executable, _ = build(new_backend("bad", hook, on="tanh"), FakeBackend("good", None), by_cost=True)
    assert outcomes(executable)["tanh"] != "bad"
    assert "bad" in outcomes(executable).values()
    (failure,) = executable.report_data["hook_failures"]
    assert failure["ops"] == ["c"]


FOUR = R.parse("""
def main(x: R.Tensor((2, 4))):
    y0 = R.exp(x)
    z0 = R.sin(y0)
    y1 = R.cos(x)
    z1 = R.sin(y1)
    y2 = R.tanh(x)
    z2 = R.sin(y2)
    y3 = R.abs(x)
    z3 = R.sin(y3)
    return z0, z1, z2, z3
""")
FOUR_REGIONS = PartitionOptions(force={f"z{k}": "host" for k in range(4)})


def test_only_the_function_for_which_codegen_raises_is_refused() -> None:
    """Of four regions compiled by a single call, the region with the guilty op goes to the other backend."""
    bad = FailingBackend("bad", "byoc_codegen", on="tanh")
    with pytest.warns(UserWarning, match="byoc_codegen"):
        executable = byoc_core.build(FOUR, [bad, FakeBackend("good", None)], partition_options=FOUR_REGIONS)
    assert outcomes(executable) == {"exp": "bad", "cos": "bad", "tanh": "good", "abs": "bad", "sin": "host"}
    (region,) = [item for item in executable.report_data["regions"] if item.get("refused_by")]
    assert region["refused_by"] == ["bad"]
    results = byoc_core.VirtualMachine(executable)["main"](X)
    for result, function in zip(results, (np.exp, np.cos, np.tanh, np.abs), strict=True):
        np.testing.assert_allclose(result, np.sin(function(X)), rtol=1e-6)


def test_functions_that_only_fail_together_are_refused_together() -> None:
    class Crowded(FakeBackend):
        @hookimpl
        def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> Any:
            if len(functions) > 2:
                raise RuntimeError("too many")
            return super().byoc_codegen(functions, context)

    with pytest.warns(UserWarning, match="too many"):
        executable = byoc_core.build(FOUR, [Crowded("bad", None)], partition_options=FOUR_REGIONS)
    assert set(outcomes(executable).values()) == {"host"}
    (failure,) = executable.report_data["hook_failures"]
    assert len(failure["ops"]) == 4


@pytest.mark.parametrize("part", ["check", "condition"])
def test_a_pattern_that_raises_does_not_match_there(part: str) -> None:
    operand = wildcard().where(divide_by_rank) if part == "condition" else wildcard()
    check = divide_by_rank if part == "check" else None
    pattern = CompositePattern("bad.twice", is_op("tanh")(is_op("add")(operand, wildcard())), check=check)
    executable, told = build(FakeBackend("bad", ["nn.relu"], [pattern]), FakeBackend("good", None))
    assert outcomes(executable) == {"nn.relu": "bad", "add": "good", "tanh": "good", "multiply": "good"}
    assert "ZeroDivisionError" in told
    with pytest.raises(PatternError, match="ZeroDivisionError"):
        build(FakeBackend("bad", ["nn.relu"], [pattern]), strict=True)


def test_a_prepared_module_that_breaks_a_law_is_refused() -> None:
    def prepare(module: IRModule) -> IRModule:
        function = module["main"]
        return module.with_functions({"main": type(function)("main", function.params, (), function.results)})

    executable, told = build(FakeBackend("bad", None, prepare=prepare), FakeBackend("good", None))
    assert set(outcomes(executable).values()) == {"good"}
    assert "`byoc_prepare`: raised VerifyError" in told


def test_an_answer_of_the_wrong_type_is_a_failure_too() -> None:
    executable, told = build(FakeBackend("bad", supports=lambda binding: 42), FakeBackend("good", None))  # type: ignore[arg-type,return-value]
    assert set(outcomes(executable).values()) == {"good"}
    assert "returned a value of the wrong type" in told


def test_a_wrong_option_stays_the_users_error() -> None:
    def fail() -> None:
        raise OptionsError("bad.speed", "is too large")

    with pytest.raises(OptionsError):
        build(FailingBackend("bad", "byoc_codegen", fail))


def test_an_op_that_is_forced_to_a_failing_backend_is_an_error() -> None:
    with pytest.raises(PartitionError, match="byoc_supports"):
        build(FailingBackend("bad", "byoc_supports"), partition_options=PartitionOptions(force={"a": "bad"}))


def test_the_traceback_is_logged_and_the_report_is_the_same_twice(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "byoc_core"):
        first, _ = build(FailingBackend("bad", "byoc_supports"))
    assert any(record.exc_info is not None and "byoc_supports" in record.message for record in caplog.records)
    second, _ = build(FailingBackend("bad", "byoc_supports"))
    failures = first.report_data["hook_failures"]
    assert failures == second.report_data["hook_failures"]
    assert failures == json.loads(json.dumps(failures))
    assert str(Path(__file__).parent) not in failures[0]["traceback"]


def test_explain_tells_of_failures_and_stops_where_it_shall() -> None:
    with pytest.warns(UserWarning, match="byoc_supports"):
        explanation = byoc_core.explain(MODULE, [FailingBackend("bad", "byoc_supports")])
    assert "hook byoc_supports raised ZeroDivisionError: integer modulo by zero for 4 ops" in explanation.report()
    with pytest.raises(HookError):
        byoc_core.explain(MODULE, [FailingBackend("bad", "byoc_supports")], strict=True)


def test_partition_and_codegen_by_themselves_raise() -> None:
    with pytest.raises(HookError):
        partition(MODULE, [FailingBackend("bad", "byoc_supports")])
    bad = FailingBackend("bad", "byoc_codegen")
    with pytest.raises(HookError):
        RunCodegen(backends=[bad])(partition(MODULE, [bad]))
