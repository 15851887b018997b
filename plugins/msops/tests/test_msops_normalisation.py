"""Normalisation of sums and of embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plugins.msops.tests.ms_nodes import Array, check_node, check_offload, check_results, refusal, rng, run_node

pytestmark = pytest.mark.asks_for_plugins

SIZES = {2: "batch", 5: "steps"}
SKIPS = [(2, 5, 8), (1, 5, 8), (5, 8)]
HALF_ERROR = 2.0**-9


def _floats(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("skip", SKIPS)
@pytest.mark.parametrize("optional", [(), (3,), (4,), (3, 4)])
@pytest.mark.parametrize("outputs", [1, ["o0", "", "", "o3"], 4])
def test_skip_layer_norm(skip: tuple[int, ...], optional: tuple[int, ...], outputs: Any) -> None:
    given: list[Array | None] = [_floats(2, 5, 8), _floats(*skip, seed=1), _floats(8, seed=2)]
    given += [_floats(8, seed=index) if index in optional else None for index in (3, 4)]
    check_node("SkipLayerNormalization", given, outputs, dynamic=SIZES, epsilon=1e-3)
    check_node("SkipLayerNormalization", given, outputs)


@pytest.mark.parametrize("skip", SKIPS)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("outputs", [1, ["o0", "", "", "o3"], ["o0", "", "o2", "o3"]])
def test_skip_rms_norm(skip: tuple[int, ...], has_bias: bool, outputs: Any) -> None:
    given: list[Array | None] = [_floats(2, 5, 8), _floats(*skip, seed=1), _floats(8, seed=2)]
    given += [_floats(8, seed=3)] if has_bias else []
    check_node("SkipSimplifiedLayerNormalization", given, outputs, dynamic=SIZES, epsilon=1e-3)


@pytest.mark.parametrize("op_type", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_halves(op_type: str) -> None:
    """ONNX Runtime rounds no sum; the ops round each."""
    given = [_floats(*shape, seed=index, dtype="float16") for index, shape in enumerate(((2, 5, 8), (2, 5, 8), (8,)))]
    check_node(op_type, given, ["o0", "", "", "o3"], error=HALF_ERROR)


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_rms_norm_of_the_standard_domain(axis: int, dtype: str, outputs: int) -> None:
    x = _floats(2, 5, 8, dtype=dtype)
    given = [x, _floats(*x.shape[axis:], seed=1, dtype=dtype)]
    error = HALF_ERROR if dtype == "float16" else 2.0**-18
    check_node(
        "SimplifiedLayerNormalization", given, outputs, domain="", dynamic=SIZES, error=error, axis=axis, epsilon=1e-2
    )


WORDS = np.array([[1, 2, 0, 3, 4], [0, 4, 4, 1, 2]], np.int32)
SEGMENTS = np.array([[0, 0, 1, 1, 1], [0, 1, 0, 1, 0]], np.int32)
TABLES = [_floats(6, 8, seed=1), _floats(7, 8, seed=2), _floats(3, 8, seed=3)]
PARAMETERS = [_floats(8, seed=4), _floats(8, seed=5)]
MASKS = [None, [[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]], [[0, 1, 2, 1, 0], [0, 0, 0, 0, 0]]]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("has_segments", [True, False])
@pytest.mark.parametrize("positions", [None, [[1, 2, 3, 4, 6]], [[3, 2, 1, 0, 5], [0, 0, 1, 1, 2]]])
def test_embed_layer_norm(mask: Any, has_segments: bool, positions: Any) -> None:
    word_table, position_table, segment_table = TABLES
    segments = (SEGMENTS, segment_table) if has_segments else (None, None)
    extra = [None if array is None else np.array(array, np.int32) for array in (mask, positions)]
    given = [WORDS, segments[0], word_table, position_table, segments[1], *PARAMETERS, *extra]
    check_node("EmbedLayerNormalization", given, 3, dynamic=SIZES, constants={2, 3, 4, 5, 6}, epsilon=1e-5)


def test_ccompiler_takes_norms() -> None:
    given = [_floats(2, 5, 8), _floats(2, 5, 8, seed=1), *(_floats(8, seed=index) for index in (2, 3, 4))]
    check_offload("SkipLayerNormalization", given, ["o0", "", "", "o3"])
    check_offload("SkipSimplifiedLayerNormalization", given[:3], ["o0", "", "", "o3"])
    check_offload("SimplifiedLayerNormalization", [given[0], given[2]], domain="")
    embedded = [WORDS, SEGMENTS, *TABLES, *PARAMETERS]
    check_offload("EmbedLayerNormalization", embedded, constants=range(2, 7))


def test_malformed_nodes() -> None:
    x, gamma = _floats(2, 5, 8), _floats(8)
    assert refusal("SkipLayerNormalization", [x, _floats(8), gamma]) == (
        "input 1, the skip, has an unsupported shape; got (8,), expected (2, 5, 8)"
    )
    assert refusal("SkipSimplifiedLayerNormalization", [x, x, gamma], 2) == (
        "has the output of the mean, unused by this norm"
    )
    assert refusal("SimplifiedLayerNormalization", [x, gamma], domain="", stash_type=11) == (
        "attribute `stash_type` has an unsupported value; expected 1"
    )
    assert refusal("EmbedLayerNormalization", [WORDS[0], None, *TABLES[:2], None, *PARAMETERS]) == (
        "input 0, the words, is no matrix; got (5,), expected (batch, steps)"
    )
    assert refusal("EmbedLayerNormalization", [WORDS, SEGMENTS, *TABLES[:2], None, *PARAMETERS]) == (
        "has either segments or their embeddings, but not both"
    )


def test_the_sum_is_the_normalised_value() -> None:
    x, gamma = _floats(2, 5, 8), _floats(8, seed=2)
    _, total = run_node("SkipLayerNormalization", [x, x, gamma], ["o0", "", "", "o3"])
    check_results([total], [x + x], error=0.0)
