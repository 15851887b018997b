"""Stated orders of axes: permitted, and with a wrong statement or wrong numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from byoc_core.backend.hooks import AxisOrders, CodegenResult, CompileContext, hookimpl
from byoc_core.ir import Binding, Function, TensorType
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS as REFERENCE

from fakenpu.faults.fault import Change, Fault

LAYOUTS = frozenset({"L2-layouts"})
_LAST = (0, 2, 3, 1)


def _channels_last(function: Function) -> Sequence[AxisOrders] | None:
    """State channels last for pooling of images."""
    (binding,) = function.bindings
    if binding.op.name != "nn.avg_pool2d" or binding.attrs["layout"] != "NCHW":
        return None
    return [AxisOrders((_LAST,), (_LAST,))]


def _with_one_order_too_many(function: Function) -> Sequence[AxisOrders] | None:
    stated = _channels_last(function)
    return stated and [AxisOrders((*orders.operands, None), orders.results) for orders in stated]


def _without_an_axis(function: Function) -> Sequence[AxisOrders] | None:
    stated = _channels_last(function)
    return stated and [AxisOrders(orders.operands, ((0, 1, 1, 2),)) for orders in stated]


def _states(hook: Callable[[Function], Sequence[AxisOrders] | None], *also: Change) -> Change:
    """Return the change adding the hook, and further changes."""

    def byoc_layouts(function: Function) -> Sequence[AxisOrders] | None:
        return hook(function)

    def change(names: dict[str, Any]) -> None:
        names["byoc_layouts"] = hookimpl(byoc_layouts)
        for other in also:
            other(names)

    return change


def _permutes(names: dict[str, Any]) -> None:
    names["KERNELS"]["permute_dims"] = REFERENCE["permute_dims"]
    names["KERNELS"]["reshape"] = REFERENCE["reshape"]


def _takes_permuted_for_row_major(names: dict[str, Any]) -> None:
    """Read and write permuted values of a region of a single op as if in row-major order."""
    codegen = names["byoc_codegen"]

    def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        result: CodegenResult = codegen([_reshaped(function) for function in functions], context)
        return result

    names["byoc_codegen"] = hookimpl(byoc_codegen)


def _reshaped(function: Function) -> Function:
    """Replace the permutations around a single op by changes of shape alone."""
    params = {id(param) for param in function.params}
    is_border = [
        binding.op.name == "permute_dims"
        and (id(binding.operands[0]) in params or any(value is binding.results[0] for value in function.results))
        for binding in function.bindings
    ]
    if is_border.count(False) != 1 or not any(is_border):
        return function
    bindings = (
        _as_reshape(binding) if found else binding for binding, found in zip(function.bindings, is_border, strict=True)
    )
    return replace(function, bindings=tuple(bindings))


def _as_reshape(binding: Binding) -> Binding:
    (result,) = binding.results
    assert isinstance(result.type, TensorType)
    op = default_ops()["reshape"]
    return Binding(binding.results, op, binding.operands, op.normalise_attrs({"shape": result.type.shape}))


FAULTS = {
    "states-orders": Fault(frozenset(), compile_half=_states(_channels_last), run_half=_permutes),
    "takes-permuted-for-row-major": Fault(
        LAYOUTS, compile_half=_states(_channels_last, _takes_permuted_for_row_major), run_half=_permutes
    ),
    "states-orders-and-permutes-nothing": Fault(LAYOUTS, compile_half=_states(_channels_last)),
    "states-one-order-too-many": Fault(LAYOUTS, compile_half=_states(_with_one_order_too_many), run_half=_permutes),
    "states-no-permutation": Fault(LAYOUTS, compile_half=_states(_without_an_axis), run_half=_permutes),
}
