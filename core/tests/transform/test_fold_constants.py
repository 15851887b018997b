"""Constant folding of weights stored in narrow dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.dtypes import to_numpy
from byoc_core.ir import FunctionBuilder, IRModule, tensor
from byoc_core.ops import default_ops
from byoc_core.transform import FoldConstants

ROWS, COLUMNS = 1024, 768


def _product(stored: str, computed: str) -> IRModule:
    """Return a product with cast weights; the growth is above the bound of other ops."""
    builder = FunctionBuilder("main", ops=default_ops())
    weights = np.random.default_rng(0).integers(-9, 9, (ROWS, COLUMNS)).astype(to_numpy(stored))
    wide = builder.bind("cast", [builder.const(weights)], {"dtype": computed}).result
    assert weights.size * to_numpy(computed).itemsize - weights.nbytes > FoldConstants().max_growth_nbytes
    result = builder.bind("matmul", [builder.param("x", tensor((3, ROWS), computed)), wide], {}).result
    return IRModule({"main": builder.finish(result)}, builder.constants)


@pytest.mark.parametrize(
    ("stored", "computed"),
    [("float16", "float32"), ("bfloat16", "float32"), ("float8_e4m3fn", "float32"), ("float32", "float64")],
)
def test_weights_stored_as_narrow_floats_are_widened_once(stored: str, computed: str) -> None:
    module = FoldConstants()(_product(stored, computed))
    assert [binding.op.name for binding in module["main"].bindings] == ["matmul"]
    (weights,) = module["main"].bindings[0].operands[1:]
    assert getattr(weights.type, "dtype", None) == computed


def test_integers_are_not_widened_beyond_the_bound() -> None:
    """Backends multiply bytes directly; as int32, the bytes would take four times the memory."""
    module = FoldConstants()(_product("int8", "int32"))
    assert [binding.op.name for binding in module["main"].bindings] == ["cast", "matmul"]


def test_casts_of_floats_stay_within_the_cost_of_folding(caplog: pytest.LogCaptureFixture) -> None:
    module = FoldConstants(max_cost=1000)(_product("float16", "float32"))
    assert [binding.op.name for binding in module["main"].bindings] == ["cast", "matmul"]
    assert "max_fold_cost" in caplog.text
