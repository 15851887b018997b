"""Padding, axes, triangles, ranges, positions, spectra and distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plugins.msops.tests.ms_nodes import Array, check_node, check_offload, check_results, refusal, rng, run_node

pytestmark = pytest.mark.asks_for_plugins

X = rng().standard_normal((2, 3, 5, 6)).astype(np.float32)
DYNAMIC = {2: "batch", 3: "channels", 6: "width"}
EITHER = pytest.mark.parametrize("constants", [(), (1, 2)])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("widths", [[0, 0, 1, 2, 0, 0, 2, 1], [[0, 0, 1, 2, 0, 0, 2, 1]]])
def test_padding(mode: str, widths: Any) -> None:
    check_node("Pad", [X, np.array(widths)], constants={1}, dynamic={2: "batch"}, mode=mode)


@EITHER
def test_padding_with_a_number(constants: Any) -> None:
    given = [X, np.array([0, 1, 1, 2, 0, 0, 2, 1]), np.array([1.5], np.float32)]
    check_node("Pad", given, constants=constants)
    check_node("Pad", [X, np.array([0, 0, -1, 2, 0, 0, 2, -1])], constants={1})


@pytest.mark.parametrize("axis", [0, 1, -1, -2, [2], 4])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_new_axes(axis: Any, dtype: str) -> None:
    check_node("ExpandDims", [X.astype(dtype), np.array(axis, np.int32)], constants={1}, dynamic=DYNAMIC)


@EITHER
@pytest.mark.parametrize("upper", [0, 1])
def test_triangles(constants: Any, upper: int) -> None:
    check_node("Trilu", [X], upper=upper, dynamic=DYNAMIC)
    for diagonal in (-1, 2):
        check_node("Trilu", [X, np.array(diagonal)], upper=upper, constants=constants, dynamic={2: "batch"})


def test_distinct_elements() -> None:
    check_node("Unique", [np.array([3, 1, 3, 2, 1, 7], np.float32)], 3, dynamic={6: "count"})


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", "int16"])
@pytest.mark.parametrize("bounds", [(0, 5, 1), (5, 0, -2), (2, 9, 3), (1, 4)])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("constants", [(), (0, 1, 2)])
def test_ranges(dtype: str, bounds: tuple[int, ...], shape: tuple[int, ...], constants: Any) -> None:
    given = [np.full(shape, number, dtype) for number in bounds]
    check_node("Range", given, constants=constants)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_gathering(dtype: str) -> None:
    indices = np.array([[0, 1], [1, 2], [1, -1]], dtype)
    check_node("GatherND", [X, indices], dynamic={6: "width"})


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_sampling(mode: str, border: str, align_corners: int) -> None:
    grid = rng(1).uniform(-1.4, 1.4, (2, 4, 7, 2)).astype(np.float32)
    attrs: dict[str, Any] = {"mode": mode, "padding_mode": border, "align_corners": align_corners}
    check_node("GridSample", [X, grid], error=2.0**-16, **attrs)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("width", [6, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_spectra(rank: int, width: int, dtype: str) -> None:
    """ONNX Runtime has no kernel for processors: the oracle is numpy."""
    signal = rng().standard_normal((2, 3, 5, width)).astype(dtype)
    axes = tuple(range(4 - rank, 4))
    spectrum = np.fft.rfftn(signal.astype(np.float64), axes=axes)
    parts = np.stack([spectrum.real, spectrum.imag], axis=-1).astype(dtype)
    check_results(run_node("Rfft", [signal], signal_ndim=rank, dynamic={2: "batch"}), [parts])
    check_results(
        run_node("Irfft", [parts], signal_ndim=rank, dynamic={3: "channels"} if rank == 1 else None), [signal]
    )


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distances(metric: str, dtype: str) -> None:
    pair = [rng(seed).standard_normal((count, 6)).astype(dtype) for seed, count in enumerate((3, 5))]
    check_node("CDist", pair, metric=metric, dynamic={3: "rows", 5: "others"})


def test_ccompiler_takes_data_movement() -> None:
    check_offload("Pad", [X, np.array([0, 1, 1, 2, 0, 0, 2, 1])], constants={1})
    check_offload("Trilu", [X])
    check_offload("CDist", [X[0, 0], X[0, 1]], metric="euclidean")
    check_offload("GatherND", [X, np.array([[0, 1], [1, 2]], np.int32)])


def test_malformed_nodes() -> None:
    def found(op_type: str, *inputs: Array, outputs: int = 1, **attrs: Any) -> str:
        return refusal(op_type, inputs, outputs, **attrs)

    assert found("Pad", X, np.zeros((2, 4), np.int64)) == (
        "input 1, the widths, has the wrong shape; got (2, 4), expected (2 * rank,)"
    )
    assert found("ExpandDims", X, np.array(1, np.int32)) == "input 1, the axis, is no constant number"
    assert found("Unique", X, outputs=3) == "input 0 is no vector; got (2, 3, 5, 6)"
    assert found("Range", np.zeros(2), np.zeros(2)) == "input 0 is no scalar; got (2,)"
    assert found("Rfft", X, onesided=0) == "attribute `onesided` has an unsupported value; got 0, expected 1"
    assert found("Irfft", X, normalized=1) == "attribute `normalized` has an unsupported value; got 1, expected 0"
    assert found("Rfft", X[0, 0, 0], signal_ndim=2) == (
        "attribute `signal_ndim` is unsupported; got 2, expected 1 to 3, with an axis for each"
    )
    assert found("CDist", X[0, 0], X[0]) == "input 1 is no matrix; got (3, 5, 6)"
    assert found("CDist", X[0, 0], X[0, 0], metric="cosine") == (
        "attribute `metric` is unsupported; got cosine, expected euclidean or sqeuclidean"
    )
