"""ONNX ``AffineGrid``, against ONNX Runtime and the formula of the op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import VirtualMachine, build
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.module import IRModule

from core.tests.frontend.conftest import Case, build_node_model

Cases = list[dict[str, Any]]

_SIZES = {2: [3, 1, 4, 5], 3: [3, 1, 2, 4, 5]}


def _maps(rank: int, dtype: str = "float32") -> npt.NDArray[Any]:
    return np.random.default_rng(rank).uniform(-1, 1, (3, rank, rank + 1)).astype(dtype)


def _affine_grid(opset: int) -> Cases:
    return [
        {
            "inputs": [_maps(rank, dtype), np.array(_SIZES[rank])],
            "attrs": {"align_corners": align},
            "constants": constants,
            "exact": False,
            "terms": 8,
        }
        for rank in (2, 3)
        for align in (0, 1)
        for constants in ((), (1,))
        for dtype in ("float32", "float64")
    ]


_CASES: dict[str, Callable[[int], Cases]] = {"AffineGrid": _affine_grid}


def test_same_as_onnxruntime(
    op_type: str, opset: int, check_case: Callable[..., IRModule], make_case: Callable[..., Any]
) -> None:
    for case in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**case))


def _formula(maps: npt.NDArray[Any], sizes: list[int], align: int) -> npt.NDArray[Any]:
    axes = []
    for size in sizes[2:]:
        steps = np.arange(size)
        axes.append(steps * 2 / max(size - 1, 1) - 1 if align else (2 * steps + 1) / size - 1)
    points = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(sizes[2:])], axis=-1)
    return np.asarray(np.einsum("...k,nrk->n...r", points, maps.astype(np.float64)))


@pytest.mark.parametrize("constants", [(), (1,)], ids=["computed", "constant"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("sizes", [[3, 1, 1, 5], [3, 1, 1, 4, 5], [3, 1, 7, 1, 1]])
def test_axes_of_a_single_element(sizes: list[int], align: int, constants: tuple[int, ...]) -> None:
    maps = _maps(len(sizes) - 2)
    case = Case([maps, np.array(sizes)], {"align_corners": align}, constants)
    run = VirtualMachine(build(from_onnx(build_node_model("AffineGrid", 20, case)), []))["main"]
    result = np.asarray(run(*([maps] if constants else [maps, np.array(sizes)])))
    np.testing.assert_allclose(result, _formula(maps, sizes, align), rtol=1e-5, atol=1e-6)


def test_narrow_floats_are_rounded_once() -> None:
    maps = _maps(3, "float16")
    case = Case([maps, np.array(_SIZES[3])], {}, (1,))
    result = np.asarray(VirtualMachine(build(from_onnx(build_node_model("AffineGrid", 20, case)), []))["main"](maps))
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, _formula(maps, _SIZES[3], 0), rtol=2**-10, atol=2**-20)


@pytest.mark.parametrize(
    ("maps", "sizes", "problem"),
    [
        (_maps(2), [3, 1, 4], "has a size of the wrong number of axes; got [3, 1, 4], expected 4 or 5 sizes"),
        (_maps(3), [3, 1, 4, 5], "has maps of the wrong shape; got [3, 3, 4], expected (N, 2, 3)"),
    ],
)
def test_errors(maps: npt.NDArray[Any], sizes: list[int], problem: str) -> None:
    with pytest.raises(FrontendError) as caught:
        from_onnx(build_node_model("AffineGrid", 20, Case([maps, np.array(sizes)], {}, (1,))))
    assert problem in str(caught.value)
