"""The check of a type rule against the kernel, and the list of the ops covered by files of cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import evaluate, symbol
from byoc_core.dtypes import to_numpy
from byoc_core.ops import default_ops
from byoc_core.opset.contexts import TypeContext
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.types import TensorType, Type, is_static
from hypothesis import strategies as st

Shape = tuple[int, ...]
Case = tuple[list[tuple[Shape, str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]


def _infer(op: OpDef, types: list[TensorType], attrs: dict[str, Any]) -> tuple[Type, ...]:
    context = TypeContext(op.name, tuple(types), op.normalise_attrs(attrs), operand_names=op.operand_names(len(types)))
    return op.infer(context)


def _symbolic(shape: Shape, chosen: set[int]) -> TensorType:
    return TensorType(tuple(symbol(f"s{size}") if size in chosen else size for size in shape), "float32")


def _check_rule(name: str, case: Case, draw: Draw) -> None:
    op = default_ops()[name]
    operands, attrs = case
    types = [TensorType(shape, dtype) for shape, dtype in operands]
    arrays = [np.ones(shape, to_numpy(dtype)) for shape, dtype in operands]
    assert op.kernel is not None
    normal = op.normalise_attrs(attrs)
    given_back = op.kernel(*arrays, **normal)
    results = given_back if isinstance(given_back, tuple) else (given_back,)
    promised = _infer(op, types, attrs)
    assert all(isinstance(result, np.ndarray) for result in results)
    assert promised == tuple(TensorType(result.shape, result.dtype.name) for result in results)
    assert all(is_static(type_) for type_ in promised)

    # The same with symbols in place of some sizes; a size of 1 stays, because broadcasting depends on it.
    sizes = {size for shape, _ in operands for size in shape if size != 1}
    chosen = {size for size in sorted(sizes) if draw(st.booleans())}
    loose = [TensorType(_symbolic(shape, chosen).shape, dtype) for shape, dtype in operands]
    values = {f"s{size}": size for size in chosen}
    for type_, result in zip(_infer(op, loose, attrs), results, strict=True):
        assert isinstance(type_, TensorType)
        assert type_.shape is not None
        assert tuple(evaluate(dim, values) for dim in type_.shape) == result.shape


@pytest.fixture(scope="session")
def check_rule() -> Callable[[str, Case, Draw], None]:
    """Return a function comparing an op's rule with the kernel, with known and with symbolic sizes."""
    return _check_rule
