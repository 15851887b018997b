"""Kernels of the host in C: the results of the numpy kernels that define the ops, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.errors import ByocError
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.graph import KernelEngine
from byoc_core.runtime.graph.document import GraphNode
from byoc_core.runtime.graph.native_kernels import native_kernels
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

NDArray = npt.NDArray[Any]
pytestmark = pytest.mark.skipif(not native_kernels(), reason="the C extension is not built")

SUPPRESSION = "nn.non_max_suppression"


def _reference(op: str) -> NumpyKernel:
    kernel = KERNELS[op]
    assert isinstance(kernel, NumpyKernel)
    return kernel


@st.composite
def _suppressions(draw: st.DrawFn) -> tuple[tuple[NDArray, ...], bool]:
    """Return operands and the attribute: coarse numbers, so that scores are equal and boxes are empty or the same."""
    dtype = np.dtype(draw(st.sampled_from(["float16", "float32", "float64"])))
    images, classes, boxes = draw(st.integers(0, 2)), draw(st.integers(0, 3)), draw(st.integers(0, 12))
    width = 8 * dtype.itemsize
    some = st.one_of(st.integers(-3, 6).map(float), st.floats(-4, 4, width=width), st.sampled_from([np.nan, np.inf]))  # type: ignore[arg-type]
    corners = draw(hnp.arrays(dtype, (images, boxes, 4), elements=some))
    scores = draw(hnp.arrays(dtype, (images, classes, boxes), elements=some))
    if draw(st.booleans()):  # strided operands
        corners, scores = np.asfortranarray(corners), scores[..., ::-1]
    overlap, least = (np.array(draw(st.sampled_from([0.0, 0.3, 0.5, 1.0, -1.0, np.nan])), dtype) for _ in range(2))
    operands = (corners, scores, np.array(draw(st.integers(-1, 5)), np.int64), overlap, least)
    return operands, draw(st.booleans())


_ONE_BOX = (np.zeros((1, 1, 4), "f4"), np.ones((1, 1, 1), "f4"), np.int64(1), np.float32(0), np.float32(0))


@given(_suppressions())
@example((tuple(map(np.asarray, _ONE_BOX)), True))
def test_the_same_boxes_are_chosen(case: tuple[tuple[NDArray, ...], bool]) -> None:
    operands, is_centre = case
    found = native_kernels()[SUPPRESSION](*operands, center_point_box=is_centre)
    expected = _reference(SUPPRESSION)(*operands, center_point_box=is_centre)
    assert (found.dtype, found.flags.writeable) == (expected.dtype, True)
    np.testing.assert_array_equal(found, expected)


def test_many_boxes() -> None:
    rng = np.random.default_rng(0)
    corners = rng.random((2, 400, 4), np.float32)
    corners[..., 2:] = corners[..., :2] + 0.2 * corners[..., 2:]
    scores = rng.random((2, 3, 400), np.float32)
    operands = (corners, scores, np.array(50), np.array(0.3, "f4"), np.array(0.2, "f4"))
    found = native_kernels()[SUPPRESSION](*operands, center_point_box=False)
    assert 6 < len(found) <= 300
    np.testing.assert_array_equal(found, _reference(SUPPRESSION)(*operands, center_point_box=False))


def test_no_memory_is_taken_without_images() -> None:
    scores = np.broadcast_to(np.zeros((), "f4"), (0, 1, 1 << 40))
    boxes = np.broadcast_to(np.zeros((), "f4"), (0, 1 << 40, 4))
    operands = (boxes, scores, np.array(1), np.zeros((), "f4"), np.zeros((), "f4"))
    assert native_kernels()[SUPPRESSION](*operands, center_point_box=False).shape == (0, 3)


def test_misfits_are_the_errors_of_the_numpy_kernel() -> None:
    operands = (
        np.zeros((1, 5, 4), "f4"),
        np.zeros((1, 2, 6), "f4"),
        np.array(1),
        np.zeros((), "f4"),
        np.zeros((), "f4"),
    )
    for kernel in (native_kernels()[SUPPRESSION], _reference(SUPPRESSION)):
        with pytest.raises(ByocError, match="boxes"):
            kernel(*operands, center_point_box=False)


def test_the_host_runs_these_kernels_and_other_engines_their_own() -> None:
    node = GraphNode(SUPPRESSION, (), (), {})
    assert KernelEngine().kernel_of(node) is native_kernels()[SUPPRESSION]
    own = _reference(SUPPRESSION)
    assert KernelEngine({SUPPRESSION: own}).kernel_of(node) is own
