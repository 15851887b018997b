"""Each op has a lowering, a reason for its absence, or is new to this backend: then the lint lists the op."""

from __future__ import annotations

import byoc_dnnl.backend as dnnl
import numpy as np
from byoc_core.backend.hooks import CompileContext, Rejection
from byoc_core.ir import tensor
from byoc_core.ops import default_ops, unary_op
from byoc_core.ops.cases import new_function
from byoc_dnnl.lowerings import LOWERINGS, declines
from byoc_dnnl.lowerings.refusals import REFUSALS


def test_an_op_has_a_lowering_or_a_reason_not_both() -> None:
    assert sorted(LOWERINGS.keys() & REFUSALS.keys()) == []
    assert sorted((LOWERINGS.keys() | REFUSALS.keys()) - default_ops().keys()) == []


def test_an_op_that_is_in_neither_table_is_refused_as_new() -> None:
    op = unary_op("log2p", "Return the logarithm of ``2 + x``.", lambda x: np.log2(x + 2))
    _, binding = new_function(op, [tensor((2, 3))], {})
    assert dnnl.byoc_supports(binding, CompileContext("dnnl", None)) == Rejection.of_new_op("log2p")
    assert declines("log2p") == "not yet considered by this plugin"
