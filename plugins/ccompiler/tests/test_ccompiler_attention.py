"""Attention as one kernel: against float64, on all kinds of masks, sizes and layouts."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.dims import Dim, symbol
from byoc_core.ir import TensorType
from byoc_core.runtime.module import NDArray

from plugins.ccompiler.tests.bench import PORTABLE, Bench

CASES: dict[str, tuple[Any, ...]] = {
    "plain": ((1, 2, 5, 8), (1, 2, 7, 8), 8, None, {}),
    "groups-of-heads": ((2, 4, 17, 16), (2, 2, 33, 16), 24, None, {"scale": 0.5}),
    "several-blocks-of-keys": ((1, 3, 300, 20), (1, 3, 521, 20), 12, (1, 1, 300, 521), {}),
    "mask-per-key-softcap": ((2, 2, 9, 64), (2, 2, 9, 64), 64, (2, 1, 1, 9), {"softcap": 3.0}),
    "mask-per-key": ((2, 4, 9, 16), (2, 2, 600, 16), 24, (2, 1, 1, 600), {}),
    "causal": ((1, 2, 13, 8), (1, 2, 13, 8), 8, None, {"causal": True}),
    "causal-offset": ((1, 2, 5, 8), (1, 2, 300, 8), 8, (5, 300), {"causal": True, "offset": 270}),
    "ones": ((1, 1, 1, 1), (1, 1, 1, 1), 1, None, {}),
    "no-keys": ((1, 2, 3, 8), (1, 2, 0, 8), 4, None, {}),
    "no-queries": ((1, 2, 0, 8), (1, 2, 3, 8), 4, None, {}),
}

PRODUCTS = """
from byoc_core import script as R

@R.function
def main(q: R.Tensor((1, 2, 5, 8)), k: R.Tensor((1, 2, 7, 8)), v: R.Tensor((1, 2, 7, 8))):
    t = R.permute_dims(k, axes=(0, 1, 3, 2))
    a = R.matmul(q, t)
    b = R.multiply(a, R.const(0.5))
    c = R.nn.softmax(b)
    d = R.matmul(c, v)
    e = R.exp(d)
    return e
"""
"""Attention in decomposed form, and an op behind."""


def _types(
    query: tuple[Dim, ...], key: tuple[Dim, ...], width: int, mask: tuple[Dim, ...] | None, dtype: str
) -> list[TensorType]:
    types = [TensorType(query, dtype), TensorType(key, dtype), TensorType((*key[:3], width), dtype)]
    return types if mask is None else [*types, TensorType(mask, dtype)]


def _draw(types: list[TensorType], seed: int = 3) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal([int(str(d)) for d in t.shape or ()]).astype(t.dtype) for t in types]


def assert_near(actual: NDArray, oracle: NDArray, values: NDArray, length: int, size: int) -> None:
    """Check weighted means of values: a sum over all keys, with weights from inexact exponents.

    A weight's relative error is the error of the score, a sum of ``size`` products, and of exp; scores here are below
    32.
    """
    unit = float(np.finfo(actual.dtype).eps)
    bound = (length + 32 * size + 64) * unit * max(1.0, float(np.abs(values).max(initial=0)))
    np.testing.assert_allclose(actual, oracle, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("march", ["native", "generic", PORTABLE])
def test_attention_is_that_of_float64(march: str, dtype: str) -> None:
    bench = Bench(march=march)
    cases = []
    for query, key, width, mask, attrs in CASES.values():
        types = _types(query, key, width, mask, dtype)
        cases.append((bench.op("nn.attention", types, **attrs), types))
    for function, types in cases:
        inputs = _draw(types)
        (actual,) = bench.run(function, *inputs)
        (oracle,) = bench.reference(function, *inputs, wide=True)
        assert_near(actual, oracle, inputs[2], inputs[1].shape[2], inputs[1].shape[3])


def test_steps_that_see_nothing_give_nan_or_zeros(bench: Bench) -> None:
    types = _types((1, 1, 4, 8), (1, 1, 6, 8), 3, (4, 6), "float32")
    plain = bench.op("nn.attention", types)
    zeros = bench.op("nn.attention", types, zero_unseen=True)
    inputs = _draw(types)
    inputs[3][1] = -np.inf
    inputs[3][2, 1:] = -np.inf
    (actual,) = bench.run(plain, *inputs)
    assert np.isnan(actual[0, 0, 1]).all()
    assert np.isfinite(actual[0, 0, [0, 2, 3]]).all()
    np.testing.assert_array_equal(actual[0, 0, 2], inputs[2][0, 0, 0])
    (actual,) = bench.run(zeros, *inputs)
    assert not actual[0, 0, 1].any()


@pytest.mark.parametrize("zero_unseen", [False, True])
def test_keys_that_no_query_sees(bench: Bench, zero_unseen: bool) -> None:
    types = _types((2, 3, 9, 8), (2, 3, 40, 8), 5, (2, 1, 1, 40), "float32")
    function = bench.op("nn.attention", types, zero_unseen=zero_unseen)
    inputs = _draw(types)
    inputs[3][0, :, :, 3:37] = -np.inf
    inputs[3][1] = -np.inf
    (actual,) = bench.run(function, *inputs)
    (oracle,) = bench.reference(function, *inputs, wide=True)
    assert_near(actual, oracle, inputs[2], 40, 8)
    assert np.isfinite(actual[0]).all()
    assert not actual[1].any() if zero_unseen else np.isnan(actual[1]).all()


def test_symbolic_sizes_and_a_mask_that_may_be_spread(bench: Bench) -> None:
    shapes: list[tuple[Any, ...]] = [("b", 2, "s", 8), ("b", 2, "t", 8), ("b", 2, "t", 8), ("m", 1, 1, "t")]
    builder = bench.builder()
    types = [TensorType(tuple(symbol(d) if isinstance(d, str) else d for d in s), "float32") for s in shapes]
    params = [builder.param(f"x{k}", type_) for k, type_ in enumerate(types)]
    function = bench.add(builder, *builder.bind("nn.attention", params, {}).results)
    rng = np.random.default_rng(0)
    for b, s, t, m in ((2, 5, 9, 1), (3, 1, 300, 3), (1, 20, 40, 1)):
        sizes = ((b, 2, s, 8), (b, 2, t, 8), (b, 2, t, 8), (m, 1, 1, t))
        inputs = [rng.standard_normal(shape).astype("float32") for shape in sizes]
        (actual,) = bench.run(function, *inputs)
        (oracle,) = bench.reference(function, *inputs, wide=True)
        assert_near(actual, oracle, inputs[2], t, 8)


def test_transposed_heads_are_read_and_written_in_place(bench: Bench) -> None:
    """Projections have shape (B, S, H*D); attention reads the heads there and writes the result back, without copy."""
    builder = bench.builder()
    heads = []
    for name in "qkv":
        x = builder.param(name, TensorType((2, 11, 24), "float32"))
        split = builder.emit("reshape", x, shape=(2, 11, 3, 8))
        heads.append(builder.emit("permute_dims", split, axes=(0, 2, 1, 3)))
    attended = builder.emit("nn.attention", *heads)
    back = builder.emit("permute_dims", attended, axes=(0, 2, 1, 3))
    function = bench.add(builder, builder.emit("reshape", back, shape=(2, 11, 24)))
    inputs = [np.random.default_rng(k).standard_normal((2, 11, 24)).astype("float32") for k in range(3)]
    (actual,) = bench.run(function, *inputs)
    (oracle,) = bench.reference(function, *inputs, wide=True)
    assert_near(actual, oracle, inputs[2], 11, 8)
    source = bench.module.get_source()
    assert source.count("/* nn.attention */") == 1
    assert "/* permute_dims */" not in source
    assert "/* reshape */" not in source


@pytest.mark.parametrize(("heads", "group"), [(symbol("h"), 1), (symbol("h") * 2, 2)])
def test_an_unknown_number_of_heads_that_groups_divide(bench: Bench, heads: Dim, group: int) -> None:
    """An op admitted to regions because of recognition there is also taken by itself."""
    builder = bench.builder()
    shapes: list[tuple[Any, ...]] = [(2, heads, 5, 8), (2, symbol("h"), 6, 8), (2, symbol("h"), 6, 8)]
    params = [builder.param(name, TensorType(shape, "float32")) for name, shape in zip("qkv", shapes, strict=True)]
    function = bench.add(builder, builder.emit("nn.attention", *params))
    rng = np.random.default_rng(0)
    for h in (1, 3):
        sizes = ((2, h * group, 5, 8), (2, h, 6, 8), (2, h, 6, 8))
        inputs = [rng.standard_normal(shape).astype("float32") for shape in sizes]
        (actual,) = bench.run(function, *inputs)
        (oracle,) = bench.reference(function, *inputs, wide=True)
        assert_near(actual, oracle, inputs[2], 6, 8)


def test_a_profile_names_all_ops_computed_as_attention() -> None:
    module = byoc_core.parse(PRODUCTS)
    inputs = [np.ones(shape, np.float32) for shape in ((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8))]
    found = byoc_core.profile(byoc_core.build(module, ["ccompiler"]), inputs, num_calls=2)
    (region,) = found.regions
    assert [[op.value for op in part.ops] for part in region.parts] == [["t", "a", "b", "c", "d"], ["e"]]
    assert region.parts[0].flops + region.parts[1].flops == region.flops
