"""Ops of the core declare all facts; an incomplete op lists the facts taken from defaults."""

from __future__ import annotations

import pytest
from byoc_core.ir import STRUCTURAL_OPS, OpDef, OperandSpec, no_flops
from byoc_core.ops import NORM, default_ops

COMPUTING = sorted(default_ops().keys() - {op.name for op in STRUCTURAL_OPS})
BARE = OpDef("mynpu.bare", (OperandSpec("x"),), infer=lambda context: (context.tensor(0),))


@pytest.mark.parametrize("name", COMPUTING)
def test_an_op_of_the_core_states_all_facts(name: str) -> None:
    assert default_ops()[name].unstated == ()


def test_an_op_names_what_it_does_not_state() -> None:
    assert BARE.unstated == ("kernel", "flops", "rounding", "cases", "doc")
    moves = OpDef(BARE.name, BARE.operands, BARE.infer, flops=no_flops)
    assert moves.unstated == ("kernel", "cases", "doc")  # an op without FLOPs moves data, which is exact
    judged = OpDef(BARE.name, BARE.operands, BARE.infer, rounding=NORM)
    assert "rounding" not in judged.unstated
