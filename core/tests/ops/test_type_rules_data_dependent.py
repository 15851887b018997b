"""Type rules of ops with data-dependent sizes against their kernels, with known and with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import evaluate, symbol
from byoc_core.dtypes import to_numpy
from byoc_core.ops import default_ops
from byoc_core.opset.contexts import TypeContext
from byoc_core.opset.types import TensorType
from hypothesis import given
from hypothesis import strategies as st

Case = tuple[list[tuple[tuple[int, ...], str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

_DTYPES = st.sampled_from(["float32", "float64", "float16", "bfloat16", "int32", "uint8", "bool"])


def _shape(draw: Draw, low: int = 0) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(0, 5), min_size=low, max_size=3)))


def _axis(draw: Draw, shape: tuple[int, ...]) -> int | None:
    return draw(st.none() | st.integers(-len(shape), len(shape) - 1)) if shape else None


def _nonzero(draw: Draw) -> Case:
    return [(_shape(draw), draw(_DTYPES))], {}


def _compress(draw: Draw) -> Case:
    shape = _shape(draw)
    axis = _axis(draw, shape)
    size = int(np.prod(shape)) if axis is None else shape[axis]
    return [(shape, draw(_DTYPES)), ((draw(st.integers(0, size)),), "bool")], {"axis": axis}


def _unique(draw: Draw) -> Case:
    shape = _shape(draw)
    return [(shape, draw(_DTYPES))], {"axis": _axis(draw, shape), "sorted": draw(st.booleans())}


def _range(draw: Draw) -> Case:
    return [((), draw(st.sampled_from(["float32", "float64", "int16", "int32", "int64"])))] * 3, {}


_CASES: dict[str, Callable[[Draw], Case]] = {
    "nonzero": _nonzero,
    "compress": _compress,
    "unique": _unique,
    "range": _range,
}


@pytest.mark.parametrize("name", sorted(_CASES))
@given(data=st.data())
def test_rule_promises_what_the_kernel_gives(name: str, data: st.DataObject) -> None:
    op = default_ops()[name]
    operands, given_attrs = _CASES[name](data.draw)
    attrs = op.normalise_attrs(given_attrs)
    chosen = {size for shape, _ in operands for size in shape if data.draw(st.booleans())}
    types = tuple(TensorType(tuple(symbol(f"s{d}") if d in chosen else d for d in shape), t) for shape, t in operands)
    names = op.operand_names(len(operands))
    assert op.sized_results is not None
    wanted = op.sized_results(TypeContext(name, types, attrs, operand_names=names), symbol("fresh"))
    assert op.infer(TypeContext(name, types, attrs, declared=wanted, operand_names=names)) == wanted

    arrays = [np.ones(shape, to_numpy(dtype)) for shape, dtype in operands]
    assert op.kernel is not None
    given_back = op.kernel(*arrays, **attrs)
    results = given_back if isinstance(given_back, tuple) else (given_back,)
    assert wanted[0].shape is not None
    size = results[0].shape[wanted[0].shape.index(symbol("fresh"))]
    values = {**{f"s{size}": size for size in chosen}, "fresh": size}
    for type_, result in zip(wanted, results, strict=True):
        assert type_.shape is not None
        assert TensorType(tuple(evaluate(dim, values) for dim in type_.shape), type_.dtype) == TensorType(
            result.shape, result.dtype.name
        )
