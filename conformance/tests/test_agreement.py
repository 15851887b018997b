"""Agreement of results distinguishes ops, and does not judge rounding."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from byoc_conformance.promises.l1_partition.agreement import agree

FLOATS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_agrees(dtype: type) -> None:
    x: npt.NDArray[Any] = np.linspace(0.5, 4.0, 8).astype(dtype)
    neighbours = np.nextafter(x, np.asarray(9.0, dtype))
    assert (neighbours != x).all()
    assert agree([x], [neighbours])


@pytest.mark.parametrize("dtype", FLOATS)
def test_another_op_does_not_agree(dtype: type) -> None:
    x: npt.NDArray[Any] = np.linspace(0.5, 4.0, 8).astype(dtype)
    assert not agree([np.exp(x)], [x])
    assert not agree([x], [-x])


def test_types_shapes_and_counts_are_compared() -> None:
    x = np.ones((2, 3), np.float32)
    assert agree([x], [x.copy()])
    assert not agree([x], [x.astype(np.float64)])
    assert not agree([x], [x.reshape(3, 2)])
    assert not agree([x], [x, x])


def test_integers_are_compared_exactly() -> None:
    x = np.array([1, 2, 3])
    assert agree([x], [x.copy()])
    assert not agree([x], [x + np.array([0, 0, 1])])


def test_what_is_not_finite_is_compared_as_it_is() -> None:
    x = np.array([1.0, np.inf, -np.inf, np.nan], np.float32)
    assert agree([x], [x.copy()])
    assert not agree([x], [np.array([1.0, np.inf, np.inf, np.nan], np.float32)])
    assert not agree([x], [np.array([1.0, 1.0, -np.inf, np.nan], np.float32)])
    assert not agree([np.zeros(1)], [np.array([np.inf])])


def test_nothing_agrees_with_nothing() -> None:
    assert agree([np.zeros((0, 3), np.float32)], [np.zeros((0, 3), np.float32)])
