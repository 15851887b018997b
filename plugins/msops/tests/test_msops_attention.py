"""Attention of merged weights, of several heads, and rotary position embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plugins.msops.tests.ms_nodes import (
    Array,
    check_node,
    check_offload,
    check_results,
    refusal,
    rng,
    run_node,
    run_onnxruntime,
)

pytestmark = pytest.mark.asks_for_plugins

BATCH, STEPS, HEADS, SIZE, PAST, KEYS = 3, 5, 2, 4, 7, 6
WIDTH = HEADS * SIZE
DYNAMIC = {BATCH: "batch", STEPS: "steps", PAST: "past", 2 * BATCH: "2*batch"}
LARGE = 2.0**-10
"""The error of scores with a term of -10000, relative to the results: such scores have an ULP of 2**-10."""


def _floats(*shape: int, seed: int = 0) -> Array:
    return rng(seed).standard_normal(shape).astype(np.float32)


def _flags(*shape: int, seed: int = 0) -> Array:
    flags = rng(seed).integers(0, 2, shape).astype(np.int32)
    flags[..., 0] = 1
    return flags


X = _floats(BATCH, STEPS, 10)
WEIGHTS = [_floats(10, 3 * WIDTH, seed=1), _floats(3 * WIDTH, seed=2)]
MASKS: dict[str, Array] = {
    "lengths": np.array([3, 2, 5], np.int32),
    "ends and begins": np.array([3, 4, 5, 1, 2, 0], np.int32),
    "keys": _flags(BATCH, STEPS),
    "pairs": _flags(BATCH, STEPS, STEPS),
}


def attention(inputs: Any, outputs: Any = 1, **attrs: Any) -> list[Array]:
    return check_node("Attention", inputs, outputs, num_heads=HEADS, dynamic=DYNAMIC, error=LARGE, **attrs)


@pytest.mark.parametrize("mask", [None, *MASKS])
@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("outputs", [1, 2])
def test_attention(mask: str | None, unidirectional: int, outputs: int) -> None:
    given = [X, *WEIGHTS, *([] if mask is None else [MASKS[mask]])]
    attention(given, outputs, unidirectional=unidirectional)


@pytest.mark.parametrize("mask", [None, _flags(BATCH, PAST + STEPS), _flags(BATCH, STEPS, PAST + STEPS)])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_with_a_past(mask: Array | None, unidirectional: int) -> None:
    past = _floats(2, BATCH, HEADS, PAST, SIZE, seed=3)
    attention([X, *WEIGHTS, mask, past], 2, unidirectional=unidirectional)


@pytest.mark.parametrize("term", [(1, HEADS), (BATCH, 1), (BATCH, HEADS), (1, 1)])
@pytest.mark.parametrize("mask", [None, "keys"])
def test_attention_with_a_term(term: tuple[int, int], mask: str | None) -> None:
    added = _floats(*term, STEPS, STEPS, seed=4)
    attention([X, *WEIGHTS, None if mask is None else MASKS[mask], None, added], scale=0.3)


def test_variants_of_attention() -> None:
    attention([X, *WEIGHTS, MASKS["keys"]], mask_filter_value=-3.0)
    attention([X, WEIGHTS[0], np.zeros(3 * WIDTH, np.float32)], scale=0.7)
    attention([X, _floats(10, 28, seed=1), _floats(28, seed=2)], qkv_hidden_sizes=[8, 8, 12])


def test_attention_without_bias() -> None:
    """ONNX Runtime 1.32 reads uninitialised memory without a bias: the oracle is a bias of zeros."""
    given: list[Array | None] = [X, WEIGHTS[0], np.zeros(3 * WIDTH, np.float32)]
    expected = run_onnxruntime("Attention", given, num_heads=HEADS)
    check_results(run_node("Attention", [*given[:2]], num_heads=HEADS), expected)


def test_attention_with_a_square_mask() -> None:
    """ONNX Runtime has no kernel for processors: the oracle is the mask of pairs."""
    square, past = _flags(BATCH, 1, 14, 14), _floats(2, BATCH, HEADS, PAST, SIZE, seed=3)
    (result, _) = run_node("Attention", [X, *WEIGHTS, square, past], 2, num_heads=HEADS, dynamic=DYNAMIC)
    pairs = square[:, 0, PAST : PAST + STEPS, : PAST + STEPS]
    (wanted, _) = run_node("Attention", [X, *WEIGHTS, pairs, past], 2, num_heads=HEADS)
    np.testing.assert_array_equal(result, wanted)


QUERY, KEY, VALUE = (
    _floats(BATCH, steps, WIDTH, seed=seed) for seed, steps in enumerate((STEPS, KEYS, KEYS), start=10)
)
NEW = [_floats(BATCH, STEPS, WIDTH, seed=seed) for seed in (11, 12)]
CACHE = [_floats(BATCH, HEADS, PAST, SIZE, seed=seed) for seed in (13, 14)]
BIAS = _floats(3 * WIDTH, seed=15)


def multi_head(inputs: Any, outputs: Any = 1, **attrs: Any) -> list[Array]:
    sizes = {**DYNAMIC, KEYS: "keys"}
    return check_node("MultiHeadAttention", inputs, outputs, num_heads=HEADS, dynamic=sizes, error=LARGE, **attrs)


@pytest.mark.parametrize("bias", [None, BIAS])
@pytest.mark.parametrize("mask", [None, np.array([3, 1, 6], np.int32), _flags(BATCH, KEYS), _flags(BATCH, STEPS, KEYS)])
@pytest.mark.parametrize("term", [None, (BATCH, HEADS), (1, 1)])
def test_attention_of_separate_operands(bias: Array | None, mask: Array | None, term: tuple[int, int] | None) -> None:
    added = None if term is None else _floats(*term, STEPS, KEYS, seed=16)
    multi_head([QUERY, KEY, VALUE, bias, mask, added])


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("mask", [None, _flags(BATCH, PAST + STEPS)])
@pytest.mark.parametrize("bias", [None, BIAS])
def test_attention_of_separate_operands_with_a_past(
    unidirectional: int, mask: Array | None, bias: Array | None
) -> None:
    multi_head([QUERY, *NEW, bias, mask, None, *CACHE], 3, unidirectional=unidirectional)


def test_variants_of_attention_of_separate_operands() -> None:
    multi_head([QUERY, KEY, _floats(BATCH, KEYS, 12, seed=17)])
    multi_head([QUERY, KEY, VALUE, BIAS], 3)
    multi_head([QUERY, KEY, VALUE, None, _flags(BATCH, KEYS)], scale=0.2, mask_filter_value=-2.0)
    multi_head([QUERY, *NEW], unidirectional=1)
    multi_head([QUERY[:, :1], *(part[:, :1] for part in NEW), None, None, None, *CACHE], 3, unidirectional=1)
    heads = [_floats(BATCH, HEADS, KEYS, SIZE, seed=seed) for seed in (18, 19)]
    multi_head([QUERY, *heads])
    multi_head([QUERY, *heads, BIAS])


@pytest.mark.parametrize("bias", [None, BIAS])
def test_packed_operands(bias: Array | None) -> None:
    """ONNX Runtime has no kernel for processors: the oracle are the separate operands."""
    packed = _floats(BATCH, STEPS, HEADS, 3, SIZE, seed=20)
    parts = [np.ascontiguousarray(packed[:, :, :, index]).reshape(BATCH, STEPS, WIDTH) for index in range(3)]
    expected = run_onnxruntime("MultiHeadAttention", [*parts, bias], num_heads=HEADS)
    given = [packed, None, None, bias]
    check_results(run_node("MultiHeadAttention", given, num_heads=HEADS, dynamic={STEPS: "steps"}), expected)
    pairs = np.ascontiguousarray(packed[:, :, :, 1:])
    given = [parts[0], pairs, None, bias]
    check_results(run_node("MultiHeadAttention", given, num_heads=HEADS, dynamic={STEPS: "steps"}), expected)


def test_scores_of_attention_of_separate_operands() -> None:
    """ONNX Runtime needs the declared type of the output: the oracle is the formula."""
    flags = _flags(BATCH, KEYS)
    given = [QUERY, KEY, VALUE, None, flags]
    _, scores = run_node("MultiHeadAttention", given, ["o0", "", "", "o3"], num_heads=HEADS, dynamic=DYNAMIC)
    query, key = (part.reshape(BATCH, -1, HEADS, SIZE).transpose(0, 2, 1, 3) for part in (QUERY, KEY))
    mask = np.where(flags > 0, np.float32(0), np.float32(-10000))[:, np.newaxis, np.newaxis]
    check_results([scores], [(query @ key.swapaxes(2, 3) / np.float32(2) + mask).astype(np.float32)])


CACHES = [_floats(10, 4, seed=21), _floats(10, 4, seed=22)]
POSITIONS = np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7], [1, 1, 9, 0, 0]], np.int64)


@pytest.mark.parametrize("x", [_floats(BATCH, STEPS, 24), _floats(BATCH, 6, STEPS, 8)])
@pytest.mark.parametrize("positions", [POSITIONS, np.array([4], np.int64)])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("partial", [False, True])
def test_rotary_embedding(x: Array, positions: Array, interleaved: int, partial: bool) -> None:
    caches = [np.ascontiguousarray(cache[:, :2]) for cache in CACHES] if partial else CACHES
    attrs = {"num_heads": 3 if x.ndim == 3 else 6, "rotary_embedding_dim": 4} if partial else {}
    keywords: dict[str, Any] = {"interleaved": interleaved, "dynamic": DYNAMIC, **attrs}
    check_node("RotaryEmbedding", [x, positions, *caches], **keywords)
    halves = [array.astype(np.float16) for array in (x, *caches)]
    check_node("RotaryEmbedding", [halves[0], positions, *halves[1:]], error=2.0**-9, **keywords)


def test_ccompiler_takes_attention() -> None:
    check_offload("Attention", [X, *WEIGHTS, MASKS["keys"]], num_heads=HEADS, error=LARGE)
    check_offload("Attention", [X, *WEIGHTS, MASKS["lengths"]], 2, num_heads=HEADS, unidirectional=1, error=LARGE)
    check_offload("MultiHeadAttention", [QUERY, KEY, VALUE, BIAS], num_heads=HEADS)
    check_offload("MultiHeadAttention", [QUERY, *NEW, None, None, None, *CACHE], 3, num_heads=HEADS, unidirectional=1)
    check_offload("RotaryEmbedding", [_floats(BATCH, STEPS, 24), POSITIONS, *CACHES], constants={2, 3})


def test_malformed_nodes() -> None:
    given = [X, *WEIGHTS]

    def attention_refusal(*optional: Array | None, outputs: int = 1, **attrs: Any) -> str:
        return refusal("Attention", [*given, *optional], outputs, num_heads=HEADS, **attrs)

    assert attention_refusal(np.zeros(11, np.int32)).startswith(
        "input 3, the mask, has an unsupported shape; got (11,), expected (batch,), (2 * batch,), "
    )
    assert attention_refusal(do_rotary=1) == "attribute `do_rotary` has an unsupported value; got 1, expected 0"
    assert attention_refusal(past_present_share_buffer=1) == (
        "has a buffer shared by past and present keys, an unsupported feature"
    )
    assert attention_refusal(None, X).startswith("input 4, the past, has the wrong rank; ")
    assert attention_refusal(qkv_hidden_sizes=[8, 8]).startswith("attribute `qkv_hidden_sizes` has not three sizes")
    assert attention_refusal(qkv_hidden_sizes=[8, 8, 12]).startswith("the parts do not fit the size of the split axis")
    assert attention_refusal(qkv_hidden_sizes=[4, 4, 16], outputs=2) == (
        "has the output of keys and values, of different sizes; got (4, 4, 16)"
    )
    assert refusal("Attention", given, num_heads=3) == (
        "the width of a part of the product is no multiple of the number of heads; got 8, expected 3"
    )

    def multi_head_refusal(*inputs: Array | None, outputs: int = 1, **attrs: Any) -> str:
        return refusal("MultiHeadAttention", inputs, outputs, num_heads=HEADS, **attrs)

    assert multi_head_refusal(QUERY, KEY, VALUE, unidirectional=1) == (
        "is unidirectional with other numbers of steps and keys; got (5, 6)"
    )
    assert multi_head_refusal(QUERY, *NEW, outputs=4, unidirectional=1) == (
        "has the output of the scores, and is unidirectional; expected only one"
    )
    share = np.array([1], np.int32)
    assert multi_head_refusal(QUERY, *NEW, None, None, None, *CACHE, share).startswith("has input 8, of a cache shared")
    assert multi_head_refusal(QUERY, *NEW, None, None, None, CACHE[0]).startswith("has past keys or past values")
    assert multi_head_refusal(QUERY).startswith("input 0 is not packed; ")

    def rotary_refusal(x: Array, positions: Array = POSITIONS, **attrs: Any) -> str:
        return refusal("RotaryEmbedding", [x, positions, *CACHES], **attrs)

    x = _floats(BATCH, STEPS, 24)
    assert rotary_refusal(x, is_packed_batching=1).startswith("attribute `is_packed_batching` has an unsupported value")
    assert rotary_refusal(x, rotary_embedding_dim=6).startswith("attribute `rotary_embedding_dim` differs from the")
    assert rotary_refusal(x, rotary_embedding_dim=8) == "lacks attribute `num_heads`"
    assert rotary_refusal(x[0]).startswith("input 0 has the wrong rank; ")
    assert rotary_refusal(x, POSITIONS[0]).startswith("input 1, the positions, has the wrong shape; ")
