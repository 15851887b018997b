"""Type rules of gathers, scatters and moves of slices against their kernels, and with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from byoc_core.ops import default_ops
from byoc_core.opset.contexts import TypeContext
from byoc_core.opset.types import TensorType, tensor
from hypothesis import strategies as st

Shape = tuple[int, ...]
Case = tuple[list[tuple[Shape, str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]
Dims = Sequence[int | str]

_DTYPES = st.sampled_from(["float32", "float16", "bfloat16", "int8", "int64", "uint8", "bool"])
_INTEGERS = st.sampled_from(["int32", "int64", "uint8", "uint64"])
_SIZES = st.integers(1, 5)
_INDEXED = st.integers(2, 5)  # the index is 1 in all cases
_REDUCTIONS = st.sampled_from(["update", "add", "mul", "min", "max"])


def _shape(draw: Draw, low: int = 0, high: int = 4, sizes: st.SearchStrategy[int] = _SIZES) -> Shape:
    return tuple(draw(st.lists(sizes, min_size=low, max_size=high)))


def _axis(draw: Draw, rank: int) -> int:
    return int(draw(st.integers(-rank, rank - 1)))


def _paired(draw: Draw) -> tuple[Shape, Shape, int]:
    """Return a shape, a shape of fitting indices, and the indexed axis."""
    shape = _shape(draw, 1, sizes=_INDEXED)
    axis = _axis(draw, len(shape))
    indices = [draw(st.integers(0, size)) for size in shape]
    indices[axis] = draw(st.integers(0, 6))
    return shape, tuple(indices), axis


def _gather_elements(draw: Draw) -> Case:
    shape, indices, axis = _paired(draw)
    return [(shape, draw(_DTYPES)), (indices, draw(_INTEGERS))], {"axis": axis}


def _scatter_elements(draw: Draw) -> Case:
    shape, indices, axis = _paired(draw)
    dtype = draw(_DTYPES)
    operands = [(shape, dtype), (indices, draw(_INTEGERS)), (indices, dtype)]
    return operands, {"axis": axis, "reduction": draw(_REDUCTIONS)}


def _gather_nd(draw: Draw) -> Case:
    batch, outer, inner = _shape(draw, high=2), _shape(draw, high=2), _shape(draw, high=2)
    shape = (*batch, draw(_INDEXED), *inner)
    indices = (*batch, *outer, 1)
    return [(shape, draw(_DTYPES)), (indices, draw(_INTEGERS))], {"batch_dims": len(batch)}


def _scatter_nd(draw: Draw) -> Case:
    outer, inner, dtype = _shape(draw, high=2), _shape(draw, high=2), draw(_DTYPES)
    operands = [((draw(_INDEXED), *inner), dtype), ((*outer, 1), draw(_INTEGERS)), ((*outer, *inner), dtype)]
    return operands, {"reduction": draw(_REDUCTIONS)}


def _scatter_slice(draw: Draw) -> Case:
    shape, dtype = _shape(draw, 2), draw(_DTYPES)
    starts: Shape = draw(st.sampled_from([(), shape[:1]]))
    axis = draw(st.integers(1 if starts else 0, len(shape) - 1))
    length, mode = draw(st.integers(0, 4)), draw(st.sampled_from(["linear", "circular"]))
    whole = (*shape[:axis], length + draw(st.integers(1, 3)), *shape[axis + 1 :])
    updates = (*shape[:axis], length, *shape[axis + 1 :])
    attrs = {"axis": draw(st.sampled_from([axis, axis - len(shape)])), "mode": mode}
    return [(whole, dtype), (updates, dtype), (starts, draw(_INTEGERS))], attrs


def _one_hot(draw: Draw) -> Case:
    indices, dtype = _shape(draw, high=3), draw(_DTYPES)
    attrs = {"depth": draw(st.integers(0, 4)), "axis": _axis(draw, len(indices) + 1)}
    return [(indices, draw(_INTEGERS)), ((), dtype), ((), dtype)], attrs


def _tile(draw: Draw) -> Case:
    shape = _shape(draw, high=3)
    return [(shape, draw(_DTYPES))], {"repeats": tuple(draw(st.integers(0, 3)) for _ in shape)}


def _flip(draw: Draw) -> Case:
    shape = _shape(draw, 1)
    return [(shape, draw(_DTYPES))], {"axis": _axis(draw, len(shape))}


def _roll(draw: Draw) -> Case:
    shape = _shape(draw)
    axes = tuple(draw(st.lists(st.integers(0, len(shape) - 1), unique=True))) if shape else ()
    return [(shape, draw(_DTYPES))], {"shift": tuple(draw(st.integers(-9, 9)) for _ in axes), "axis": axes}


def _stack(draw: Draw) -> Case:
    shape = _shape(draw, high=3)
    return [(shape, draw(st.just("int32")))] * draw(st.integers(1, 4)), {"axis": _axis(draw, len(shape) + 1)}


def _reverse_sequence(draw: Draw) -> Case:
    shape = _shape(draw, 2)
    batch_axis, seq_axis = draw(st.permutations(range(len(shape))))[:2]
    attrs = {"batch_axis": batch_axis, "seq_axis": seq_axis - len(shape)}
    return [(shape, draw(_DTYPES)), ((shape[batch_axis],), draw(_INTEGERS))], attrs


_CASES: dict[str, Callable[[Draw], Case]] = {
    "flip": _flip,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "one_hot": _one_hot,
    "reverse_sequence": _reverse_sequence,
    "roll": _roll,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "scatter_slice": _scatter_slice,
    "stack": _stack,
    "tile": _tile,
}


_SYMBOLIC: list[tuple[str, list[Dims], dict[str, Any], Dims]] = [
    ("take", [("n", "k", 8), ("m", 2)], {"axis": 1}, ("n", "m", 2, 8)),
    ("gather_elements", [("n", "k", 8), ("m", 3, 8)], {"axis": 1}, ("m", 3, 8)),
    ("gather_nd", [("n", "k", 8), ("m", 2)], {}, ("m", 8)),
    ("gather_nd", [("n", "k", 8, "d"), ("n", "m", 2)], {"batch_dims": 1}, ("n", "m", "d")),
    ("gather_nd", [("n", "k", "d"), (4, "m", 1)], {"batch_dims": 1}, (4, "m", "d")),
    ("gather_nd", [(4, "k", "d"), ("n", "m", 1)], {"batch_dims": 1}, (4, "m", "d")),
    ("scatter_elements", [("n", "k"), ("m", 3), ("m", 3)], {"axis": 1}, ("n", "k")),
    ("scatter_nd", [("n", "k"), ("m", 1), ("m", "k")], {}, ("n", "k")),
    ("scatter_slice", [("n", "past+m", 8), ("n", "m", 8), ("n",)], {"axis": 1}, ("n", "past+m", 8)),
    ("one_hot", [("n", "m"), (), ()], {"depth": "k+1"}, ("n", "m", "k+1")),
    ("one_hot", [("n", "m"), (), ()], {"depth": 5, "axis": 1}, ("n", 5, "m")),
    ("one_hot", [("n", "m"), (), ()], {"depth": 5, "axis": -3}, (5, "n", "m")),
    ("tile", [("n", "m", 3)], {"repeats": (2, "k", "m")}, ("2*n", "k*m", "3*m")),
    ("flip", [("n", "m")], {"axis": -1}, ("n", "m")),
    ("roll", [("n", "m")], {"shift": (1,), "axis": (0,)}, ("n", "m")),
    ("stack", [("n", "m"), ("n", 4), (3, "m")], {"axis": 1}, (3, 3, 4)),
    ("reverse_sequence", [("n", "t", 4), ("n",)], {}, ("n", "t", 4)),
]


@pytest.mark.parametrize(("name", "shapes", "attrs", "result"), _SYMBOLIC)
def test_symbolic_sizes_survive(name: str, shapes: list[Dims], attrs: dict[str, Any], result: Dims) -> None:
    op = default_ops()[name]
    indices = {"one_hot": 0, "scatter_slice": 2}.get(name, 1)
    types = [
        tensor(shape, "int64" if place == indices and name != "stack" else "float32")
        for place, shape in enumerate(shapes)
    ]
    context = TypeContext(name, tuple(types), op.normalise_attrs(attrs))
    expected = tensor(result)
    assert op.infer(context) == (TensorType(expected.shape, "float32"),)
