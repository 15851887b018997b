"""The work of ``ByCost``: hooks are called for distinct ops only, with the placement of calls for every op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.backend import BackendHandle, CompileContext, Estimate, Rejection, Support
from byoc_core.backend.contained import ContainedBackend, HookFailure
from byoc_core.ir import Binding, Function, IRModule, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.partitioning import ByCost, PartitionLog, PartitionRequest, partition
from byoc_core.partitioning.op_structure import OpNumbers
from byoc_core.partitioning.policies import cost
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.partitioning.conftest import Cases, Placement

OPS = ("tanh", "nn.relu", "abs", "add")


def chain(num_ops: int, num_weights: int = 2) -> IRModule:
    """Return a chain of four kinds of ops; the adds read weights in turn."""
    builder = FunctionBuilder("main")
    x = value = builder.param("x", tensor((64,)))
    for index in range(num_ops):
        name = OPS[index % len(OPS)]
        weight = builder.constants.add(np.full((64,), index // len(OPS) % num_weights, np.float32))
        value = builder.bind(name, (value, weight) if name == "add" else (value,), {}).results[0]
    return IRModule({"main": builder.finish(builder.bind("add", [x, value], {}).results[0])}, builder.constants)


class Counted:
    """Two backends counting the calls of hooks; each is cheaper for some ops."""

    def __init__(self, answer: Callable[[Binding], Support | Rejection] = lambda _: Support()) -> None:
        self.num_answers = 0
        self.num_estimates = 0
        self._answer = answer
        self.backends = [self._backend("aone", ("tanh", "add")), self._backend("btwo", ("nn.relu", "abs"))]

    def _backend(self, name: str, cheap: tuple[str, ...]) -> FakeBackend:
        def supports(binding: Binding) -> Support | Rejection:
            self.num_answers += 1
            return self._answer(binding)

        def estimate(function: Function) -> Estimate:
            self.num_estimates += 1
            return Estimate(1e-6 if function.bindings[0].op.name in cheap else 5e-6, 1e-7)

        return FakeBackend(name, supports=supports, estimate=estimate)


def test_the_calls_of_hooks_grow_with_distinct_ops_only(placement: type[Placement]) -> None:
    calls = []
    for num_ops in (40, 400):
        counted = Counted()
        partitioned = partition(chain(num_ops), counted.backends, policy=ByCost(margin=0))
        assert set(placement(partitioned).backend_of.values()) == {"aone", "btwo"}
        calls.append((counted.num_answers, counted.num_estimates))
    assert calls[0] == calls[1]
    assert calls[0][0] == 2 * (len(OPS) + 2)  # the adds of each weight and the last add are distinct


def test_constants_of_other_elements_are_asked_about() -> None:
    counted = Counted()
    partition(chain(80, num_weights=20), counted.backends, policy=ByCost())
    assert counted.num_answers == 2 * (len(OPS) + 20)


def test_a_refusal_naming_a_value_counts_for_the_op_alone() -> None:
    counted = Counted(lambda binding: Rejection("size", f"`{binding.results[0].name}` is too large"))
    module, log = chain(8), PartitionLog()
    partition(module, counted.backends, policy=ByCost(), log=log)
    assert counted.num_answers == 2 * 9
    names = [binding.results[0].name for binding in module["main"].bindings]
    texts = [refusal.rejection.text for name in names for refusal in log.refusals("main", name)]
    assert texts == [f"`{name}` is too large" for name in names for _ in range(2)]


@pytest.mark.filterwarnings("ignore:backend `aone`, hook `byoc_supports`. raised")
def test_a_failing_hook_is_on_record_for_every_op() -> None:
    def fail(binding: Binding) -> Support:
        raise ValueError("broken")

    failures: list[HookFailure] = []
    handle = ContainedBackend(byoc_core.backends.get(FakeBackend("aone", supports=fail)), failures)
    module = chain(8)
    ByCost()(module, PartitionRequest([handle]))
    assert [failure.ops for failure in failures] == [[b.results[0].name for b in module["main"].bindings]]


class _Forgetful:
    """Answers without memory, in place of :class:`SupportAnswers`."""

    def __init__(self) -> None:
        self.numbers = OpNumbers()

    def supports(self, handle: BackendHandle, binding: Binding, context: CompileContext) -> Support | Rejection:
        return handle.supports(binding, context)


@settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_kept_answers_change_no_placement(data: st.DataObject, cases: Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    case = data.draw(cases()).with_claims_by_kind()
    salt = data.draw(st.integers(1, 5))

    def estimate(function: Function) -> Estimate:
        return Estimate(len(function.name) * salt * 1e-7, call_seconds=1e-7, bytes_per_second=2e8)

    def placed() -> tuple[str, Any]:
        log = PartitionLog()
        backends = case.plugins(FakeBackend, estimate=estimate)
        return str(partition(case.module, backends, policy=ByCost(margin=0), log=log)), log

    kept = placed()
    with monkeypatch.context() as patch:
        patch.setattr(cost, "SupportAnswers", _Forgetful)
        assert placed() == kept
