"""Type rules of triangles, blocks of pixels and borders against their kernels, and with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ops import default_ops
from byoc_core.opset.types import tensor
from hypothesis import strategies as st

Shape = tuple[int, ...]
Case = tuple[list[tuple[Shape, str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

_ANY = st.sampled_from(["float32", "float16", "bfloat16", "int8", "int64", "uint8", "bool", "int4"])
_SIZES = st.integers(1, 4)
_MODES = st.sampled_from(["DCR", "CRD"])


def _trilu(draw: Draw) -> Case:
    shape = tuple(draw(st.lists(_SIZES, min_size=2, max_size=4)))
    return [(shape, draw(_ANY))], {"k": draw(st.integers(-9, 9)), "upper": draw(st.booleans())}


def _depth_to_space(draw: Draw) -> Case:
    n, c, h, w = (draw(_SIZES) for _ in range(4))
    block = draw(st.integers(1, 3))
    return [((n, c * block * block, h, w), draw(_ANY))], {"block_size": block, "mode": draw(_MODES)}


def _space_to_depth(draw: Draw) -> Case:
    n, c, h, w = (draw(_SIZES) for _ in range(4))
    block = draw(st.integers(1, 3))
    return [((n, c, h * block, w * block), draw(_ANY))], {"block_size": block, "mode": draw(_MODES)}


def _border_pad(draw: Draw) -> Case:
    shape = tuple(draw(st.lists(_SIZES, max_size=3)))
    widths = tuple(draw(st.integers(0, 5)) for _ in range(2 * len(shape)))
    return [(shape, draw(_ANY))], {"pad_width": widths, "mode": draw(st.sampled_from(["edge", "reflect", "wrap"]))}


_CASES: dict[str, Callable[[Draw], Case]] = {
    "depth_to_space": _depth_to_space,
    "nn.border_pad": _border_pad,
    "space_to_depth": _space_to_depth,
    "trilu": _trilu,
}


@pytest.mark.parametrize(
    ("name", "shape", "attrs", "wanted"),
    [
        ("depth_to_space", ("n", "4*c", "h", "w"), {"block_size": 2}, ("n", "c", "2*h", "2*w")),
        ("depth_to_space", ("n", 12, "h", "w"), {"block_size": 2, "mode": "CRD"}, ("n", 3, "2*h", "2*w")),
        ("space_to_depth", ("n", "c", "2*h", "w"), {"block_size": 2}, ("n", "4*c", "h", "w//2")),
        ("trilu", ("b", "s", "p+s"), {"k": "p+1"}, ("b", "s", "p+s")),
        ("nn.border_pad", ("n", 3), {"pad_width": (1, 2, 0, 4), "mode": "edge"}, ("n+3", 7)),
    ],
)
def test_symbolic_sizes_stay_precise(
    name: str, shape: tuple[Any, ...], attrs: dict[str, Any], wanted: tuple[Any, ...]
) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    assert builder.bind(name, [builder.param("x", tensor(shape))], attrs).result.type == tensor(wanted)
