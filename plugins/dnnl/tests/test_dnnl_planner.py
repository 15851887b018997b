"""Requests refused by the planner though absent from real plans, and values kept apart."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.errors import ArtifactError
from byoc_core.ir import tensor
from byoc_core.runtime.threads import num_threads
from byoc_dnnl.engine import open_engine
from byoc_dnnl.plan import Buffer, Kind, Location
from byoc_dnnl.planner import Planner
from byoc_dnnl.ranges_constants import ConstantRanges

from plugins.dnnl.tests.dnnl_region import Region, check_sums, emit


def _planner() -> tuple[Planner, int]:
    """Return a planner of a single call with the result float32[4, 6], and the result."""
    region = Region()
    region.finish(emit(region, "tanh", region.builder.param("x", tensor((4, 6)))))
    function = region.module.document.functions["f"]
    return Planner(open_engine(), function, ConstantRanges({}), strict=True), 1


def _place(planner: Planner, sizes: tuple[int, ...], nbytes: int, dtype: str = "float32") -> Location:
    return Location(Buffer(Kind.ARENA, "memory", nbytes), planner.row_major(sizes, dtype))


@pytest.mark.parametrize("sizes", [(4, 6), (6, 4), (4, 5), (24,)])
@pytest.mark.parametrize("nbytes", [95, 96, 97])
def test_a_value_is_seen_with_its_own_sizes_within_its_memory_only(sizes: tuple[int, ...], nbytes: int) -> None:
    with open_engine().threads(num_threads()):
        planner, value = _planner()
        place = _place(planner, sizes, nbytes)
        if sizes == (4, 6) and nbytes >= 96:
            planner.set_location(value, place)
            assert planner.stored_location(value) is place
            return
        with pytest.raises(ArtifactError, match="value 1: has other sizes; got"):
            planner.set_location(value, place)
        assert not planner.is_available(value)


@pytest.mark.parametrize("dtype", ["bfloat16", "int32", "uint8"])
def test_a_value_is_seen_in_its_own_dtype_only(dtype: str) -> None:
    planner, value = _planner()
    with pytest.raises(ArtifactError, match="value 1: has another dtype; got float32"):
        planner.set_location(value, _place(planner, (4, 6), 96, dtype))


@pytest.mark.parametrize(("rows", "others"), [(1, 3), (3, 1), (3, 3), (1, 1)])
@pytest.mark.parametrize("op", ["add", "multiply", "maximum"])
def test_an_operand_that_repeats_the_result_of_a_product_does_not_follow_on_it(op: str, rows: int, others: int) -> None:
    """A follower writes in place of the product: the sizes have to be the same."""
    region = Region()
    x = region.builder.param("x", tensor((rows, 8)))
    product = emit(region, "nn.dense", x, region.builder.const(region.draw(5, 8)))
    other = region.builder.param("y", tensor((others, 5)))
    region.finish(emit(region, op, product, other))
    inputs = [region.draw(rows, 8), region.draw(others, 5)]
    if op == "maximum":
        (found,), (exact,) = region.run(*inputs), region.oracle(*inputs)
        assert found.shape == exact.shape == (max(rows, others), 5)
        np.testing.assert_allclose(found, exact, rtol=0, atol=16 * 2.0**-24 * 8 * 16)
    else:
        check_sums(region, inputs, 2 * 8 + 2)
