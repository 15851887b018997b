"""The general passes on the random modules of the partition property: valid, the same numbers, the same effects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.ir import IRModule, verify
from byoc_core.transform import BindParams, FoldConstants, InferTypes, Pass, RemoveDeadCode, Sequential, UniqueNames
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_SETTINGS = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
_PASSES = [FoldConstants(), RemoveDeadCode(), InferTypes(), UniqueNames()]


def _check_same(case: Any, after: IRModule) -> None:
    (results, effects), (expected_results, expected_effects) = case.evaluate(after), case.evaluate(case.module)
    for have, want in zip(results, expected_results, strict=True):
        np.testing.assert_array_equal(have, want)
    assert repr(effects) == repr(expected_effects)


@pytest.mark.parametrize("step", _PASSES, ids=lambda step: type(step).__name__)
@_SETTINGS
@given(data=st.data())
def test_a_pass_keeps_numbers_and_effects(step: Pass, data: st.DataObject, cases: Any) -> None:
    case = data.draw(cases(40))
    before = str(case.module)
    after = verify(step(case.module))
    assert str(case.module) == before
    _check_same(case, after)
    again = step(after)
    assert again == after
    assert str(again) == str(after)


@_SETTINGS
@given(data=st.data())
def test_all_passes_in_any_order_keep_numbers_and_effects(data: st.DataObject, cases: Any) -> None:
    case = data.draw(cases(40))
    order = data.draw(st.lists(st.sampled_from(_PASSES), min_size=1, max_size=5))
    _check_same(case, Sequential(order)(case.module))


@_SETTINGS
@given(data=st.data())
def test_bound_parameters_are_folded_to_the_same_numbers(data: st.DataObject, cases: Any) -> None:
    case = data.draw(cases(40))
    first, second = case.module["main"].params[1:]
    values = {first.name: np.linspace(-2.0, 2.0, 4), second.name: np.array([0.5, -1.0, 3.0, 0.0])}
    bound = Sequential([BindParams(values)])(case.module)
    assert [param.name for param in bound["main"].params] == [case.module["main"].params[0].name]
    with np.errstate(all="ignore"):
        folded = Sequential([FoldConstants(), RemoveDeadCode()])(bound)
    for module in (bound, folded):
        results, effects = case.evaluate(module, 1)
        expected, expected_effects = case.evaluate(case.module)
        for have, want in zip(results, expected, strict=True):
            np.testing.assert_array_equal(have, want)
        assert repr(effects) == repr(expected_effects)
