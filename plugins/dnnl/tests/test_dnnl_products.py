"""Products of few rows with large weights, computed as their transpose; views of layouts other than row-major."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from byoc_core.ir import tensor
from byoc_dnnl.capi import Isa
from byoc_dnnl.engine import open_engine
from byoc_dnnl.lowerings import product
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import Region, check_sums, emit, need_avx512

OWN = product._WITHOUT_TILES
LARGE = 512  # LARGE * LARGE float32 weights have a mebibyte


def _steps(region: Region) -> list[str]:
    return [line for line in region.source.splitlines()[1:] if not line.startswith("pack")]


@pytest.fixture(scope="module", autouse=True)
def _bounds_of_one_processor() -> Iterator[None]:
    """Set the limits from 512 x 512 on, on any processor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product, "_WITHOUT_TILES", product._WITH_TILES)
        yield


def _titles(region: Region) -> list[str]:
    return [line.split("  ")[0] for line in _steps(region)]


def _chain(rows: tuple[int, ...], inner: int, outer: int) -> Region:
    """Return two products with biases, and the operand added to the result."""
    region = Region()
    x = region.builder.param("x", tensor((*rows, inner)))
    value = emit(region, "nn.dense", x, region.builder.const(region.draw(outer, inner)))
    value = emit(region, "nn.bias_add", value, region.builder.const(region.draw(outer)), axis=len(rows))
    value = emit(region, "matmul", value, region.builder.const(region.draw(outer, inner)))
    value = emit(region, "add", value, region.builder.const(region.draw(inner)))
    return region.finish(emit(region, "add", value, x))


@settings(max_examples=12)
@given(
    rows=st.sampled_from([(32,), (2, 32), (1, 48), (4, 2, 16), (8, 1, 8)]),
    sizes=st.sampled_from([(LARGE, LARGE), (LARGE + 1, LARGE + 7), (768, 640)]),
)
def test_few_rows_stay_innermost_between_products(rows: tuple[int, ...], sizes: tuple[int, int]) -> None:
    need_avx512()
    region = _chain(rows, *sizes)
    assert _titles(region) == ["reorder", "nn.dense + nn.bias_add", "matmul + add + add", "reorder"]
    check_sums(region, [region.draw(*rows, sizes[0])], sum(sizes) + 4)


@pytest.mark.parametrize(
    ("rows", "inner", "outer"),
    [((16,), LARGE, LARGE), ((40,), LARGE, LARGE), ((256,), LARGE, LARGE), ((32,), LARGE, LARGE - 1)],
    ids=["few", "no multiple of 16", "many", "small weights"],
)
def test_other_products_stay_row_major(rows: tuple[int, ...], inner: int, outer: int) -> None:
    region = _chain(rows, inner, outer)
    assert _titles(region) == ["nn.dense + nn.bias_add", "matmul + add + add"]
    check_sums(region, [region.draw(*rows, inner)], inner + outer + 4)


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("side", [LARGE, 2 * LARGE])
def test_cores_without_tiles_wait_for_fewer_rows(rows: int, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    need_avx512()
    monkeypatch.setattr(product, "_WITHOUT_TILES", OWN)
    region = _chain((rows,), side, side)
    has_tiles = open_engine().isa & Isa.AVX512_CORE_AMX == Isa.AVX512_CORE_AMX
    is_transposed = has_tiles or (rows, side) == (64, 2 * LARGE)
    assert _titles(region).count("reorder") == (2 if is_transposed else 0)
    check_sums(region, [region.draw(rows, side)], 2 * side + 4)


def test_weights_that_have_their_rows_already_are_not_packed() -> None:
    need_avx512()
    region = Region()
    x = region.builder.param("x", tensor((64, LARGE)))
    region.finish(emit(region, "nn.dense", x, region.builder.const(region.draw(LARGE, LARGE))))
    assert "pack" not in region.source
    check_sums(region, [region.draw(64, LARGE)], LARGE)


def test_a_bias_of_other_axes_is_added_by_itself() -> None:
    region = Region()
    x, y = (region.builder.param(name, tensor(shape)) for name, shape in (("x", (2, 32, LARGE)), ("y", (2, 1, LARGE))))
    value = emit(region, "nn.dense", x, region.builder.const(region.draw(LARGE, LARGE)))
    region.finish(emit(region, "add", value, y))
    assert "nn.dense" in _titles(region)
    check_sums(region, [region.draw(2, 32, LARGE), region.draw(2, 1, LARGE)], LARGE + 1)


@settings(max_examples=40)
@given(data=st.data())
def test_views_of_any_layout_have_the_right_elements(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple))
    region = Region()
    value = emit(region, "abs", region.builder.param("x", tensor(sizes)))
    for _ in range(data.draw(st.integers(1, 4))):
        shape = tuple(int(dim) for dim in getattr(value.type, "shape", ()))
        if data.draw(st.booleans()):
            value = emit(region, "permute_dims", value, axes=tuple(data.draw(st.permutations(range(len(shape))))))
        else:
            cut = data.draw(st.integers(1, len(shape)))
            joined = (*shape[: cut - 1], int(np.prod(shape[cut - 1 : cut + 1])), *shape[cut + 1 :])
            split = data.draw(st.sampled_from([d for d in range(1, joined[cut - 1] + 1) if joined[cut - 1] % d == 0]))
            target = (*joined[: cut - 1], split, joined[cut - 1] // split, *joined[cut:])
            value = emit(region, "reshape", value, shape=data.draw(st.sampled_from([joined, target])))
    region.finish(emit(region, "sqrt", value))
    x = region.draw(*sizes) ** 2
    (found,), (exact,) = region.run(x), region.oracle(x)
    np.testing.assert_array_equal(found, exact.astype(np.float32))
