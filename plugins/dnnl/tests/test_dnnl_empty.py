"""Tensors without elements: every op equals the reference kernels, planned for these sizes or called with them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import byoc_core
import byoc_dnnl.backend as dnnl
import numpy as np
import pytest
from byoc_core.backend.hooks import CompileContext, Rejection
from byoc_core.dims import DimExpr, evaluate, symbol
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.ir import Binding, FunctionBuilder, IRModule, TensorType, Var, tensor
from byoc_core.ops import default_ops
from byoc_core.ops.cases import OpCase, canonical_cases, new_function
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.graph.document import GraphDocument
from byoc_dnnl.engine import DnnlModule
from byoc_dnnl.lowerings import LOWERINGS

CASES = [case for op in LOWERINGS for case in canonical_cases(default_ops())[op]]


def _emptied(case: OpCase, size: int) -> list[TensorType]:
    """Return the operands' types with 0 in place of a size, in all places of the case."""
    return [
        TensorType(tuple(0 if dim == size else dim for dim in operand.shape), operand.dtype or case.dtype)
        for operand in case.operands
    ]


def _attrs(case: OpCase, size: int) -> dict[str, Any]:
    """Return the attributes with 0 in place of the size, as in reshapes to this size."""

    def changed(value: object) -> Any:
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return 0 if value == size and not isinstance(value, bool) else value

    sized = ("shape", "sections", "sizes")
    return {name: changed(value) if name in sized else value for name, value in case.attrs.items()}


def _check(types: list[TensorType], attrs: Mapping[str, object], case: OpCase, sizes: dict[str, int]) -> bool:
    """Check the results of an op; return whether the reference kernels accept these operands."""
    _, binding = new_function(default_ops()[case.op], types, attrs)
    function = dnnl._graph_of(binding)
    call = DnnlModule(GraphDocument(MappingProxyType({"op": function})), {}).get_function("op")
    arrays = [np.ones([evaluate(dim, sizes) for dim in type_.shape or ()], to_numpy(type_.dtype)) for type_ in types]
    outputs = [
        np.full([evaluate(dim, sizes) for dim in spec.shape], 7, to_numpy(spec.dtype))
        for spec in function.signature.outputs
    ]
    with np.errstate(all="ignore"):
        try:
            expected = KERNELS[case.op](*arrays, **{**binding.attrs, **_sized(binding, sizes)})
        except ExecutionError:
            return False
        call(*arrays, *outputs)
    for found, wanted in zip(outputs, expected if isinstance(expected, tuple | list) else [expected], strict=True):
        assert found.shape == np.shape(wanted)
        np.testing.assert_array_equal(found, wanted)
    return True


def _sized(binding: Binding, sizes: dict[str, int]) -> dict[str, Any]:
    """Return the attributes containing sizes, with numbers in place of symbols."""
    return {
        name: tuple(evaluate(dim, sizes) for dim in value if isinstance(dim, int | DimExpr))
        for name, value in binding.attrs.items()
        if isinstance(value, tuple) and any(isinstance(dim, DimExpr) for dim in value)
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_an_op_takes_tensors_without_elements(case: OpCase) -> None:
    sizes = sorted({dim for operand in case.operands for dim in operand.shape})
    num_taken = 0
    for size in sizes:
        types, attrs = _emptied(case, size), _attrs(case, size)
        try:
            new_function(default_ops()[case.op], types, attrs)
        except IRTypeError:
            continue  # the op takes no such tensor
        num_taken += _check(types, attrs, case, {})
    assert num_taken or not sizes or case.op in ("reshape", "split"), "no size may be 0"


@pytest.mark.parametrize("emptied", [False, True], ids=["whole", "without elements"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_an_op_on_tensors_larger_than_any_array_is_refused(case: OpCase, emptied: bool) -> None:
    sizes = {dim: 2**62 for operand in case.operands for dim in operand.shape}
    if emptied and sizes:
        sizes[min(sizes)] = 0
    types = [
        TensorType(tuple(sizes[dim] for dim in operand.shape), operand.dtype or case.dtype) for operand in case.operands
    ]
    try:
        _, binding = new_function(default_ops()[case.op], types, case.attrs)
    except IRTypeError:
        return  # the op takes no such sizes
    if any(type_.oversized_axis is not None for type_ in types):
        answer = dnnl.byoc_supports(binding, CompileContext("dnnl", None, MappingProxyType({})))
        assert answer == Rejection("size", f"`{case.op}`: a tensor exceeds the largest array")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_an_op_of_symbolic_sizes_is_called_without_elements(case: OpCase) -> None:
    try:
        types = list(case.symbolic_types())
        new_function(default_ops()[case.op], types, case.attrs)
        new_function(default_ops()[case.op], _emptied(case, case.operands[0].shape[0]), case.attrs)
    except (IRTypeError, IndexError):
        return  # the op takes no symbol, or no tensor without elements
    _check(types, case.attrs, case, {"n": 0})


@pytest.mark.parametrize("backends", [[], ["dnnl"]], ids=["host", "dnnl"])
@pytest.mark.parametrize("batch", [0, 3])
def test_a_reshape_that_leaves_a_size_open_takes_a_batch_without_elements(batch: int, backends: list[str]) -> None:
    """As behind a bidirectional LSTM: without elements nothing determines the open size, but its type does."""
    builder = FunctionBuilder("f", ops=default_ops())
    x = builder.param("x", tensor((5, "n", 2, 24)))
    hidden = builder.emit("tanh", x)
    assert isinstance(hidden, Var)
    result = builder.emit("reshape", hidden, shape=(5, symbol("n"), -1))
    assert isinstance(result, Var)
    module = IRModule({"f": builder.finish(result)}, builder.constants)
    executable = byoc_core.build(module, backends=backends, fallback="error" if backends else "allow")
    (found,) = [byoc_core.VirtualMachine(executable)["f"](np.zeros((5, batch, 2, 24), np.float32))]
    np.testing.assert_array_equal(found, np.zeros((5, batch, 48), np.float32))
