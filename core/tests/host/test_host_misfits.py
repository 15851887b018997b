"""Sizes hidden from the type rules by symbols: sizes refused by a rule if known are never computed in a run.

Each op's operands get a separate symbol for every size if the rule permits; then the op runs on sizes different from
the fitting sizes. If the rule refuses the known sizes, the run must fail. If the rule accepts them (broadcast sizes,
say), the results have the rule's types, or the run fails for another reason (an index out of range).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.backend.info import CompileContext
from byoc_core.dims import symbol
from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError, ExecutionError, IRTypeError
from byoc_core.host.backend import byoc_codegen
from byoc_core.ir import FunctionBuilder, TensorType
from byoc_core.ops import default_ops
from byoc_core.opset.contexts import TypeContext
from byoc_core.runtime.arguments import bind_symbols, concrete_shape
from hypothesis import given, settings
from hypothesis import strategies as st

Shape = tuple[int, ...]
Case = tuple[list[tuple[Shape, str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

_OPS = default_ops()
# The results of the others have sizes that only running tells.
_NAMES = sorted(name for name, op in _OPS.items() if op.kernel is not None and not op.declares_results)


def _infer(name: str, types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return the answer of an op's rule, ``None`` for a refusal."""
    op = _OPS[name]
    try:
        return op.infer(TypeContext(name, tuple(types), op.normalise_attrs(attrs)))
    except IRTypeError:
        return None


def _loosen(name: str, case: Case, draw: Draw) -> tuple[list[TensorType], list[tuple[int, int]]]:
    """Return operand types with a separate symbol for every drawn size if permitted, and these symbols' places."""
    operands, attrs = case
    shapes: list[list[Any]] = [list(shape) for shape, _ in operands]
    places = [(index, axis) for index, shape in enumerate(shapes) for axis in range(len(shape))]
    loosened = []
    for index, axis in draw(st.lists(st.sampled_from(places), unique=True)) if places else ():
        known, shapes[index][axis] = shapes[index][axis], symbol(f"s{index}_{axis}")
        if _infer(name, _types(shapes, operands), attrs) is None:
            shapes[index][axis] = known
        else:
            loosened.append((index, axis))
    return _types(shapes, operands), loosened


def _types(shapes: Sequence[Sequence[Any]], operands: Sequence[tuple[Shape, str]]) -> list[TensorType]:
    return [TensorType(tuple(shape), dtype) for shape, (_, dtype) in zip(shapes, operands, strict=True)]


def _run(
    name: str, types: Sequence[TensorType], attrs: dict[str, Any], inputs: Sequence[Any]
) -> tuple[Any, ...] | str | None:
    """Return the types of the results, or the error's text; ``None`` if the sizes of the results cannot be found."""
    builder = FunctionBuilder("f", ops=_OPS)
    params = [builder.param(f"x{index}", type_) for index, type_ in enumerate(types)]
    function = builder.finish(*builder.bind(name, params, attrs).results)
    module = byoc_codegen([function], CompileContext("host", None, {})).module
    assert module is not None
    packed = module.get_function("f")
    assert packed.signature is not None
    assert not packed.returns_results
    sizes = bind_symbols(packed.signature.inputs, inputs)
    try:
        specs = packed.signature.outputs
        outputs = [np.empty(concrete_shape(spec, sizes, spec.name), to_numpy(spec.dtype)) for spec in specs]
    except CallError:
        return None
    try:
        packed(*inputs, *outputs)
    except ExecutionError as error:
        return str(error)
    return tuple(TensorType(output.shape, output.dtype.name) for output in outputs)


@pytest.mark.parametrize("name", _NAMES)
@settings(max_examples=settings().max_examples * 2 // 5, deadline=None)
@given(data=st.data())
def test_no_result_where_the_rule_refuses_the_sizes(
    name: str, rule_cases: dict[str, Callable[[Draw], Case]], data: st.DataObject
) -> None:
    operands, attrs = case = rule_cases[name](data.draw)
    types, loosened = _loosen(name, case, data.draw)
    shapes = [list(shape) for shape, _ in operands]
    for index, axis in data.draw(st.lists(st.sampled_from(loosened), max_size=2, unique=True)) if loosened else ():
        size = shapes[index][axis]
        shapes[index][axis] = data.draw(st.sampled_from([0, 1, max(size - 1, 0), size + 1, 2 * size]))
    wanted = _infer(name, _types(shapes, operands), attrs)
    inputs = [np.ones(shape, to_numpy(dtype)) for shape, (_, dtype) in zip(shapes, operands, strict=True)]
    made = _run(name, types, attrs, inputs)
    if isinstance(made, str):
        # numpy's sums of products repeat an axis of size 1, so what refuses them is the type of the result.
        assert f"`{name}`" in made or (name == "einsum" and "the result is not of the declared type" in made)
    else:
        assert made in (None, wanted)
