"""Attention of few queries: keys and values read in their places, against float64, for sizes known only in a call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import DimExpr, evaluate, symbol
from byoc_core.ir import Function, TensorType
from hypothesis import example, given
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import Bench, NDArray
from plugins.ccompiler.tests.test_ccompiler_attention import assert_near

MARCHES = ("native", "x86-64-v3", "generic")
B, S, T = map(symbol, "bst")


@dataclass(frozen=True)
class Layer:
    """Attention over a cache: ``is_row_first`` caches have shape (rows, batch, groups, size)."""

    heads: int
    groups: int
    size: int
    width: int
    dtype: str = "float32"
    mask: tuple[DimExpr | int, ...] | None = None
    is_causal: bool = False
    softcap: float = 0.0
    is_row_first: bool = False


LAYERS = (
    Layer(1, 1, 8, 8),
    Layer(6, 6, 64, 64, is_causal=True, is_row_first=True),
    Layer(6, 2, 64, 64, mask=(B, 1, S, T), is_row_first=True),
    Layer(8, 1, 20, 12, mask=(B, 1, 1, T)),
    Layer(4, 2, 37, 50, mask=(4, S, T), softcap=3.0, is_row_first=True),
    Layer(12, 4, 128, 96, is_causal=True),
    Layer(3, 3, 100, 128, mask=(S, T)),
    Layer(4, 4, 9, 40, dtype="float64", is_causal=True, is_row_first=True),
    Layer(4, 2, 72, 24, dtype="float64", mask=(B, 4, S, T)),
)


def add(bench: Bench, layer: Layer, steps: Any = S, length: Any = T) -> Function:
    """Add a function attending to a cache of rows."""
    builder = bench.builder()

    def cache_of(name: str, size: int) -> Any:
        if not layer.is_row_first:
            return builder.param(name, TensorType((B, layer.groups, length, size), layer.dtype))
        stored = builder.param(name, TensorType((length, B, layer.groups, size), layer.dtype))
        return builder.emit("permute_dims", stored, axes=(1, 2, 0, 3))

    query = builder.param("q", TensorType((B, layer.heads, steps, layer.size), layer.dtype))
    operands = [query, cache_of("k", layer.size), cache_of("v", layer.width)]
    if layer.mask is not None:
        sizes: dict[Any, Any] = {S: steps, T: length}
        shape = tuple(sizes.get(dim, dim) for dim in layer.mask)
        operands.append(builder.param("m", TensorType(shape, layer.dtype)))
    attrs: dict[str, Any] = {"softcap": layer.softcap} if layer.softcap else {}
    if layer.is_causal:
        attrs |= {"causal": True, "offset": length - steps}
    return bench.add(builder, builder.emit("nn.attention", *operands, **attrs))


@cache
def compiled(march: str) -> tuple[Bench, list[Function]]:
    bench = Bench(march=march)
    return bench, [add(bench, layer) for layer in LAYERS]


def draw(layer: Layer, batch: int, steps: int, length: int, seed: int) -> list[NDArray]:
    """Return inputs; caches are the first rows of buffers with NaN and infinities behind."""
    rng = np.random.default_rng(seed)

    def cache_of(size: int) -> NDArray:
        values = rng.standard_normal((length, batch, layer.groups, size))
        if not layer.is_row_first:
            values = np.ascontiguousarray(values.transpose(1, 2, 0, 3))
        buffer = np.where(rng.random(values.size + 4096) < 0.5, np.nan, np.inf).astype(layer.dtype)
        buffer[: values.size] = values.reshape(-1)
        return buffer[: values.size].reshape(values.shape)

    inputs = [rng.standard_normal((batch, layer.heads, steps, layer.size)).astype(layer.dtype)]
    inputs += [cache_of(layer.size), cache_of(layer.width)]
    if layer.mask is not None:
        sizes = {B: batch, S: steps, T: length}
        shape = [sizes[dim] if isinstance(dim, DimExpr) else dim for dim in layer.mask]
        hidden = rng.random(shape) < 0.2
        hidden[..., :1] = False  # each query sees a key
        inputs.append(np.where(hidden, -np.inf, rng.standard_normal(shape)).astype(layer.dtype))
    return inputs


@pytest.mark.parametrize("march", MARCHES)
@given(
    number=st.integers(0, len(LAYERS) - 1),
    batch=st.integers(1, 2),
    steps=st.integers(1, 40),
    past=st.integers(0, 300),
    seed=st.integers(0, 99),
)
@example(number=2, batch=1, steps=1, past=0, seed=0)
@example(number=1, batch=2, steps=16, past=511, seed=0)  # the last number of queries without panels, two blocks of keys
@example(number=1, batch=1, steps=17, past=1030, seed=0)
@example(number=5, batch=1, steps=5, past=1030, seed=0)
@example(number=3, batch=2, steps=3, past=700, seed=0)  # blocks of queries that cross heads
def test_attention_over_a_cache_is_that_of_float64(
    march: str, number: int, batch: int, steps: int, past: int, seed: int
) -> None:
    layer, (bench, functions) = LAYERS[number], compiled(march)
    inputs = draw(layer, batch, steps, past + steps, seed)
    (actual,) = bench.run(functions[number], *inputs)
    (oracle,) = bench.reference(functions[number], *inputs, wide=True)
    assert_near(actual, oracle, inputs[2], past + steps, layer.size)


@pytest.mark.parametrize("layer", LAYERS[1:3], ids=["heads", "groups"])
def test_few_queries_of_a_known_number_pack_nothing(layer: Layer) -> None:
    bench, many = Bench(), Bench()
    function, other = add(bench, layer, 1, 700), add(many, layer, 100, 700)
    source = bench.module.get_source()
    assert "attention_in_place" in source
    assert "pack_f32" not in source
    assert "scratch" not in source
    assert "pack_f32" in many.module.get_source()
    for compiled_bench, found, steps in ((bench, function, 1), (many, other, 100)):
        inputs = draw(layer, 2, steps, 700, 5)
        (actual,) = compiled_bench.run(found, *inputs)
        (oracle,) = compiled_bench.reference(found, *inputs, wide=True)
        assert_near(actual, oracle, inputs[2], 700, layer.size)


def test_the_heads_of_a_group_share_a_block(bench: Bench) -> None:
    """The only loop goes over groups, not heads: a block reads each key once for all heads of a group."""
    function = add(bench, Layer(12, 3, 64, 64), 1, 700)
    (name,) = bench.calls(function)
    kernel = bench.module.get_source().partition(f"void {name}(")[2].partition("\n}")[0]
    assert set(re.findall(r"\(\d+ \* dim_b\)", kernel)) == {"(3 * dim_b)"}
    assert "byoc_shared_attention_in_place_f32(" in bench.module.get_source()


@pytest.mark.parametrize(("rows", "has_memory"), [(1, False), (16, False), (17, True)])
def test_memory_for_panels_is_that_of_many_queries(rows: int, has_memory: bool) -> None:
    bench, functions = compiled("native")
    layer = LAYERS[0]
    inputs = draw(layer, 1, rows, 300, 0)
    nbytes = bench.module.call_traits(functions[0].name).workspace_nbytes
    assert (evaluate(nbytes, {"b": 1, "s": rows, "t": 300}) > 1024) == has_memory
    (actual,) = bench.run(functions[0], *inputs)
    (oracle,) = bench.reference(functions[0], *inputs, wide=True)
    assert_near(actual, oracle, inputs[2], 300, layer.size)


def test_keys_without_contiguous_elements_are_packed(bench: Bench) -> None:
    builder = bench.builder()
    query = builder.param("q", TensorType((1, 2, 1, 16), "float32"))
    turned = builder.param("k", TensorType((1, 2, 16, 40), "float32"))
    key = builder.emit("permute_dims", turned, axes=(0, 1, 3, 2))
    value = builder.param("v", TensorType((1, 2, 40, 16), "float32"))
    function = bench.add(builder, builder.emit("nn.attention", query, key, value))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in ((1, 2, 1, 16), (1, 2, 16, 40), (1, 2, 40, 16))]
    (actual,) = bench.run(function, *inputs)
    (oracle,) = bench.reference(function, *inputs, wide=True)
    assert_near(actual, oracle, inputs[2], 40, 16)
    assert "pack_f32" in bench.module.get_source()
