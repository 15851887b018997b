"""Laws of every pass: a valid module, the same results, an unchanged input, nothing left for a second run."""

from __future__ import annotations

import pytest
from byoc_core.ir import IRModule, verify
from byoc_core.transform import (
    Canonicalise,
    EliminateCommonSubexpressions,
    FoldConstants,
    FoldPad,
    MoveTransposes,
    Pass,
    RecogniseComposites,
    Sequential,
    Simplify,
    default_passes,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.transform.random_modules import check_same_bits, random_inputs, random_modules

_EXAMPLES = settings().max_examples // 4
_SETTINGS = settings(
    max_examples=_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
_PASSES = (
    Canonicalise(),
    Simplify(),
    EliminateCommonSubexpressions(),
    FoldPad(),
    MoveTransposes(),
    RecogniseComposites(),
    FoldConstants(),
)


@pytest.mark.parametrize("transform", [*_PASSES, Sequential(default_passes())], ids=lambda t: type(t).__name__)
@_SETTINGS
@given(data=st.data())
def test_a_pass_keeps_every_bit(data: st.DataObject, transform: Pass) -> None:
    module: IRModule = data.draw(random_modules())
    text = str(module)
    after = transform(module)
    verify(after)
    assert str(module) == text
    assert str(transform(after)) == str(after)
    arrays = data.draw(random_inputs())
    check_same_bits(module, after, arrays)
    # In the float64 interpreter a cast still rounds, though its operand is wider than the program says.
    if not any(binding.op.name == "cast" for binding in module["main"].walk()):
        check_same_bits(module, after, arrays, exact=True)
