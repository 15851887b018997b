"""The general passes on the random modules of the partition property: valid, the same numbers, the same effects."""

from __future__ import annotations

import pytest
from byoc_core.ir import verify
from byoc_core.transform import BindParams, FoldConstants, InferTypes, Pass, RemoveDeadCode, Sequential, UniqueNames
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.partitioning.conftest import Cases
from core.tests.partitioning.trial import check_same_run

_SETTINGS = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
_PASSES = [FoldConstants(), RemoveDeadCode(), InferTypes(), UniqueNames()]


@pytest.mark.parametrize("step", _PASSES, ids=lambda step: type(step).__name__)
@_SETTINGS
@given(data=st.data())
def test_a_pass_keeps_numbers_and_effects(step: Pass, data: st.DataObject, cases: Cases) -> None:
    case = data.draw(cases(40))
    before = str(case.module)
    after = verify(step(case.module))
    assert str(case.module) == before
    check_same_run(case, after)
    repeated = step(after)
    assert repeated == after
    assert str(repeated) == str(after)


@_SETTINGS
@given(data=st.data())
def test_all_passes_in_any_order_keep_numbers_and_effects(data: st.DataObject, cases: Cases) -> None:
    case = data.draw(cases(40))
    order = data.draw(st.lists(st.sampled_from(_PASSES), min_size=1, max_size=5))
    check_same_run(case, Sequential(order)(case.module))


@_SETTINGS
@given(data=st.data())
def test_bound_parameters_are_folded_to_the_same_numbers(data: st.DataObject, cases: Cases) -> None:
    case = data.draw(cases(40))
    params = case.module["main"].params[-2:]
    bound = Sequential([BindParams({p.name: a for p, a in zip(params, case.inputs[-2:], strict=True)})])(case.module)
    assert bound["main"].params == case.module["main"].params[:-2]
    folded = Sequential([FoldConstants(), RemoveDeadCode()])(bound)
    for module in (bound, folded):
        check_same_run(case, module, inputs=case.inputs[:-2])
