"""Attention with shared heads of keys and a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from plugins.msops.tests.ms_nodes import (
    Array,
    check_offload,
    check_results,
    refusal,
    rng,
    run_node,
    run_onnxruntime,
)

pytestmark = pytest.mark.asks_for_plugins

HEADS, GROUPS, SIZE, ROWS = 4, 2, 16, 12
HEAD_COUNTS = {"num_heads": HEADS, "kv_num_heads": GROUPS}
DYNAMIC = {3: "batch", 5: "steps", 7: "past", 6: "total"}
NAMES = "query key value past_key past_value lengths total cos sin positions term sink".split()  # noqa: SIM905


def _floats(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return rng(seed).standard_normal(shape).astype(dtype)


def operands(
    steps: int, lengths: Sequence[int], total: int, past: int | None = None, dtype: str = "float32", **more: Array
) -> list[Array | None]:
    """Return the inputs: the numbers of keys of the sequences, the largest number, and the rows of the cache."""
    batch = len(lengths)
    given: dict[str, Array] = {
        "query": _floats(batch, steps, HEADS * SIZE, dtype=dtype),
        "key": _floats(batch, steps, GROUPS * SIZE, seed=1, dtype=dtype),
        "value": _floats(batch, steps, GROUPS * SIZE, seed=2, dtype=dtype),
        "lengths": np.array(lengths, np.int32) - 1,
        "total": np.array([total], np.int32),
        **more,
    }
    if past is not None:
        given |= {
            f"past_{name}": _floats(batch, GROUPS, past, SIZE, seed=seed, dtype=dtype)
            for seed, name in enumerate(("key", "value"), start=3)
        }
    inputs = [given.get(name) for name in NAMES]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def _caches(dtype: str = "float32") -> dict[str, Any]:
    return {name: _floats(ROWS, SIZE // 2, seed=seed, dtype=dtype) for seed, name in enumerate(("cos", "sin"), start=5)}


def check(inputs: Sequence[Array | None], outputs: int = 3, error: float | None = None, **attrs: Any) -> None:
    """Compare with ONNX Runtime: the rows of the cache, and the steps, within each sequence."""
    keywords: dict[str, Any] = {**HEAD_COUNTS, **attrs}
    query, lengths, total = inputs[0], inputs[5], inputs[6]
    assert query is not None
    assert lengths is not None
    assert total is not None
    steps, counts = query.shape[1], lengths + 1
    starts = np.maximum(counts - steps, 0)
    results = [
        run_node("GroupQueryAttention", inputs, outputs, dynamic=DYNAMIC, **keywords),
        run_node("GroupQueryAttention", inputs, outputs, constants={6}, **keywords),
    ]
    expected = run_onnxruntime("GroupQueryAttention", inputs, outputs, **keywords)
    for found in results:
        for index, (result, wanted) in enumerate(zip(found, expected, strict=True)):
            assert result.shape == wanted.shape
            for batch, count in enumerate(counts):
                end = count if index in (1, 2) else min(steps, count - starts[batch])
                axis = 0 if index == 0 else 1
                pair = (np.take(array[batch], range(end), axis=axis) for array in (result, wanted))
                check_results([next(pair)], [next(pair)], error)


@pytest.mark.parametrize("attrs", [{}, {"scale": 0.7, "softcap": 2.0}, {"local_window_size": 2}, {"causal": 0}])
@pytest.mark.parametrize("lengths", [(5, 5, 5), (5, 2, 3)])
@pytest.mark.parametrize("past", [None, 7])
def test_prompts(attrs: dict[str, Any], lengths: Sequence[int], past: int | None) -> None:
    """The cache has room for more keys, or is built by the attention."""
    check(operands(5, lengths, 5, past), **attrs)


@pytest.mark.parametrize("attrs", [{}, {"local_window_size": 3}, {"softcap": 1.5}])
@pytest.mark.parametrize(
    ("lengths", "total"), [((8, 8, 8), 8), ((8, 4, 2), 8), ((6, 6, 6), 6), ((6, 2, 1), 6), ((7, 7, 7), 7)]
)
def test_single_steps(attrs: dict[str, Any], lengths: Sequence[int], total: int) -> None:
    """The cache of 7 rows grows for an eighth key."""
    check(operands(1, lengths, total, 7), **attrs)


@pytest.mark.parametrize(("past", "total"), [(7, 12), (12, 10)])
@pytest.mark.parametrize("has_rotation", [0, 1])
def test_several_steps_behind_a_past(past: int, total: int, has_rotation: int) -> None:
    more: dict[str, Any] = _caches() if has_rotation else {}
    check(operands(5, (total,), total, past, **more), do_rotary=has_rotation)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("steps", "lengths", "total", "past"), [(5, (5, 3, 2), 5, None), (1, (8, 4, 2), 8, 7)])
def test_rotation(interleaved: int, steps: int, lengths: Sequence[int], total: int, past: int | None) -> None:
    check(operands(steps, lengths, total, past, **_caches()), do_rotary=1, rotary_interleaved=interleaved)


@pytest.mark.parametrize(
    ("lengths", "total", "past", "positions"),
    [
        ((5, 5, 5), 5, None, [[2, 3, 4, 5, 6], [1, 2, 3, 4, 5], [0, 0, 0, 1, 2]]),
        ((5, 5, 5), 5, 7, [[2, 3, 4, 5, 6], [1, 2, 3, 4, 5], [0, 0, 0, 1, 2]]),
        ((8, 4, 2), 8, 7, [[3], [2], [9]]),
        ((12,), 12, 7, [[2, 4, 5, 1, 0]]),
    ],
)
def test_given_positions(lengths: Sequence[int], total: int, past: int | None, positions: Any) -> None:
    given = np.array(positions, np.int64)
    check(operands(given.shape[1], lengths, total, past, **_caches(), positions=given), do_rotary=1)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("heads", [1, HEADS])
def test_terms(batch: int, heads: int) -> None:
    check(operands(5, (5, 4, 2), 5, term=_floats(batch, heads, 5, 5, seed=8)))
    check(operands(1, (8, 4, 2), 8, 7, term=_floats(batch, heads, 1, 8, seed=8)))
    check(operands(1, (6, 4, 2), 6, 7, term=_floats(batch, heads, 1, 6, seed=8)))


@pytest.mark.parametrize("attrs", [{}, {"smooth_softmax": 1}, {"softcap": 2.0}])
@pytest.mark.parametrize("has_sink", [False, True])
def test_sinks(attrs: dict[str, Any], has_sink: bool) -> None:
    more: dict[str, Any] = {"sink": _floats(HEADS, seed=9)} if has_sink else {}
    check(operands(5, (5, 4, 2), 5, **more), **attrs)
    check(operands(1, (8, 4, 2), 8, 7, **more), **attrs)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("attrs", [{}, {"softcap": 1.5}, {"smooth_softmax": 1}, {"local_window_size": 2}])
@pytest.mark.parametrize("has_term", [False, True])
def test_scores(stage: int, attrs: dict[str, Any], has_term: bool) -> None:
    more: dict[str, Any] = {"term": _floats(1, 1, 5, 5, seed=8)} if has_term else {}
    check(operands(5, (5, 5, 5), 5, **more), 4, qk_output=stage, **attrs)
    more = {"term": _floats(1, 1, 1, 6, seed=8)} if has_term else {}
    check(operands(1, (6, 4, 2), 6, 7, **more), 4, qk_output=stage, **attrs)


def test_packed_operands() -> None:
    query, key, value, *rest = operands(5, (5, 4, 2), 5, **_caches())
    assert query is not None
    assert key is not None
    assert value is not None
    check([np.concatenate([query, key, value], axis=2), None, None, *rest], do_rotary=1)


def test_halves() -> None:
    check(operands(5, (5, 4, 2), 5, dtype="float16", **_caches("float16")), error=2.0**-8, do_rotary=1)
    check(operands(1, (8, 4, 2), 8, 7, dtype="float16", **_caches("float16")), error=2.0**-8, do_rotary=1)


def test_ccompiler_takes_grouped_attention() -> None:
    keywords: dict[str, Any] = {**HEAD_COUNTS, "do_rotary": 1}
    check_offload("GroupQueryAttention", operands(5, (5, 5), 5, **_caches()), 3, constants={6, 7, 8}, **keywords)
    given = operands(1, (6, 5), 6, 8, **_caches())
    check_offload("GroupQueryAttention", given, 3, constants={6, 7, 8}, **keywords)
    on_host = {"as_size"}
    check_offload("GroupQueryAttention", given, 3, constants={7, 8}, on_host=on_host, **keywords)


def test_malformed_nodes() -> None:
    inputs = operands(5, (5, 5), 5, 7)

    def found(*changed: tuple[int, Any], outputs: int = 3, **attrs: Any) -> str:
        given = [*inputs, *[None] * (17 - len(inputs))]
        for index, array in changed:
            given[index] = array
        return refusal("GroupQueryAttention", given, outputs, **{**HEAD_COUNTS, **attrs})

    scale = np.ones(1, np.float32)
    assert found((12, scale)) == "has the scales of quantised keys (input 12), an unsupported feature"
    assert found((14, scale)) == "has weights of norms of queries (input 14), an unsupported feature"
    assert found(k_quant_type="PER_TENSOR") == "attribute `k_quant_type` has an unsupported value; got PER_TENSOR"
    assert found(sliding_window_cache=1) == (
        "attribute `sliding_window_cache` has an unsupported value; got 1, expected 0"
    )
    assert found((4, None)) == "has past keys or past values, but not both"
    assert found((2, None)) == "has keys or values, but not both"
    assert found(kv_num_heads=3).startswith("the numbers of heads do not fit; got (4, 3)")
    assert found(outputs=4) == "attribute `qk_output` does not fit the number of outputs; got (0, 4)"
    assert found(qk_output=2) == "attribute `qk_output` does not fit the number of outputs; got (2, 3)"
    assert found(causal=0, local_window_size=2) == "has a window without causality; got 2, expected -1"
    assert found((3, inputs[0])).startswith("input 3, the cache, has the wrong rank; ")
    bytes_ = np.zeros((2, GROUPS, 7, SIZE), np.int8)
    assert found((3, bytes_), (4, bytes_)) == "input 3, the cache, has another dtype; got int8, expected float32"
    assert found((1, _floats(2, 3, GROUPS * SIZE)), (2, _floats(2, 3, GROUPS * SIZE))).startswith(
        "has different numbers of queries and keys; "
    )
