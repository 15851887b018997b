"""Faults caught by tests of level 2.

Most are in float64, a dtype very rare in graphs and in ONNX's cases, so only the tests of single ops see them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, hookimpl
from byoc_core.ir import Binding, Constant, Function
from byoc_core.ops import default_ops
from byoc_core.runtime.graph import KernelEngine
from byoc_core.runtime.graph.document import GraphFunction
from byoc_core.runtime.module import NDArray

from fakenpu.faults.fault import Change, Fault

OP = frozenset({"L2-op"})
BLOCKS = frozenset({"L2-blocks"})
Kernel = Callable[..., Any]


def _kernel(op: str, change: Callable[[Kernel], Kernel]) -> Change:
    """Return the change replacing the kernel of an op."""

    def apply(names: dict[str, Any]) -> None:
        names["KERNELS"][op] = change(names["KERNELS"][op])

    return apply


def _in_float64(wrong: Callable[..., Any]) -> Callable[[Kernel], Kernel]:
    """Return a maker of kernels wrong for one dtype: ``wrong(right kernel, *operands, **attributes)``."""

    def change(kernel: Kernel) -> Kernel:
        def run(*arrays: NDArray, **attrs: Any) -> Any:
            return wrong(kernel, *arrays, **attrs) if arrays[0].dtype == np.float64 else kernel(*arrays, **attrs)

        return run

    return change


def _always(wrong: Callable[..., Any]) -> Callable[[Kernel], Kernel]:
    """Return a maker of kernels wrong for every dtype."""
    return lambda kernel: functools.partial(wrong, kernel)


def _loses_last_lane(kernel: Kernel, x: NDArray, y: NDArray) -> NDArray:
    result = np.array(kernel(x, y))
    if result.size > 16:
        result.reshape(-1)[-1] = 0
    return result


def _misses_by_a_unit(kernel: Kernel, x: NDArray) -> NDArray:
    return np.asarray(np.nextafter(kernel(x), np.inf))


def _wrong_for_odd_sizes(kernel: Kernel, x: NDArray, y: NDArray) -> NDArray:
    result = np.array(kernel(x, y))
    if result.ndim and result.shape[-1] % 2:
        result[..., -1] = result[..., 0]
    return result


def _in_single_precision(kernel: Kernel, *arrays: NDArray) -> NDArray:
    result: NDArray = kernel(*(array.astype(np.float32) for array in arrays)).astype(np.float64)
    return result


def _swapped(kernel: Kernel, x: NDArray, y: NDArray) -> Any:
    return kernel(y, x)


def _broadcasts_first_channel(kernel: Kernel) -> Kernel:
    return lambda x, y: kernel(x, y[:1] if (x.ndim, y.ndim) == (4, 3) else y)


def _ignores_axis(kernel: Kernel, *arrays: NDArray, axis: int) -> Any:
    shape = kernel(*arrays, axis=axis).shape
    return np.concatenate([array.reshape(-1) for array in arrays]).reshape(shape)


def _takes_any_negative_axis_for_the_last(kernel: Kernel, x: NDArray, *, axis: int) -> Any:
    return kernel(x, axis=max(axis, -1))


def _normalises_over_the_last_axis(
    kernel: Kernel, x: NDArray, *parameters: NDArray, axes: Sequence[int], epsilon: float
) -> Any:
    """Normalise over the last of several axes only, in four dimensions."""
    if x.ndim != 4 or len(axes) == 1:
        return kernel(x, *parameters, axes=axes, epsilon=epsilon)
    sizes = [size if axis in {a % 4 for a in axes} else 1 for axis, size in enumerate(x.shape)]
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    gamma, beta = (parameter.reshape(sizes) for parameter in parameters)
    return scaled * gamma + beta


def _counts_what_hangs_over(kernel: Kernel, x: NDArray, **attrs: Any) -> Any:
    """Divide the sum of a window overlapping the end by the whole window."""
    right = kernel(x, **attrs)
    if not (attrs["ceil_mode"] and attrs["count_include_pad"]):
        return right
    steps = attrs["strides"] or attrs["pool_size"]
    first = attrs["layout"].index("H")
    behind = [(0, steps[axis - first] - 1 if first <= axis < first + 2 else 0) for axis in range(4)]
    wide = kernel(np.pad(x, behind), **{**attrs, "ceil_mode": False})
    return wide[tuple(slice(size) for size in right.shape)]


def _stops_at_the_first(kernel: Kernel, x: NDArray, **attrs: Any) -> Any:
    """Lose the first element of an axis read backwards to beyond the beginning."""
    result = np.array(kernel(x, **attrs))
    for axis, end, step in zip(attrs["axes"], attrs["end"], attrs["strides"], strict=True):
        if step == -1 and end < -x.shape[axis]:
            np.moveaxis(result, axis, 0)[-1:] = 0
    return result


def _writes_its_input(kernel: Kernel, x: NDArray) -> Any:
    result = kernel(x)
    if x.flags.writeable:
        x[...] = result
    return result


def _flushes_its_input(kernel: Kernel, x: NDArray) -> Any:
    """Replace subnormal numbers by zeros, visibly for the caller."""
    if x.flags.writeable:
        x[np.abs(x) < np.finfo(np.float64).smallest_normal] = 0
    return kernel(x)


def _keeps_first_sizes(names: dict[str, Any]) -> None:
    """Compute as many float64 rows as in the first call."""
    engine = names["FakeEngine"]
    build = engine.build

    def broken_build(
        self: KernelEngine, function: GraphFunction, constants: Mapping[str, NDArray]
    ) -> Callable[..., object]:
        run = build(self, function, constants)
        rows: list[int] = []

        def run_as_before(*arrays: NDArray) -> object:
            returned = run(*arrays)
            result = arrays[len(function.signature.inputs)]
            if result.ndim and result.dtype == np.float64:
                rows.append(len(result))
                result[rows[0] :] = 0
            return returned

        return run_as_before

    engine.build = broken_build


def _adds_as_floats(kernel: Kernel) -> Kernel:
    def run(x: NDArray, y: NDArray) -> Any:
        return (
            kernel(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype) if x.dtype.kind == "i" else kernel(x, y)
        )

    return run


def _loses_nan(kernel: Kernel) -> Kernel:
    return lambda x: np.fmax(x, x.dtype.type(0))


def _saturates(kernel: Kernel) -> Kernel:
    return lambda x: kernel(np.minimum(x, x.dtype.type(40)))


def _wrong_in_one_shape(kernel: Kernel) -> Kernel:
    """Only ONNX's cases contain this shape."""
    return lambda x, y: kernel(x, -y) if x.shape == y.shape == (3, 4, 5) else kernel(x, y)


def _states(unit_roundoff: Mapping[str, float]) -> Change:
    return _declares(unit_roundoff=unit_roundoff)


def _declares(**fields: Any) -> Change:
    def apply(names: dict[str, Any]) -> None:
        info: BackendInfo = names["byoc_backend_info"]()
        names["byoc_backend_info"] = hookimpl(_constant_hook(replace(info, **fields)))

    return apply


def _constant_hook(info: BackendInfo) -> Callable[[], BackendInfo]:
    def byoc_backend_info() -> BackendInfo:
        return info

    return byoc_backend_info


def _rewriting(rewrite: Callable[[Function], Function]) -> Change:
    """Return a codegen compiling rewritten functions."""

    def apply(names: dict[str, Any]) -> None:
        codegen = names["byoc_codegen"]

        @hookimpl
        def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
            result: CodegenResult = codegen([rewrite(function) for function in functions], context)
            return result

        names["byoc_codegen"] = byoc_codegen

    return apply


def _takes_constants_negative(function: Function) -> Function:
    """Compile ``x - constant`` as ``constant - x``, in float64."""

    def change(binding: Binding) -> Binding:
        if binding.op.name != "subtract":
            return binding
        subtrahend = binding.operands[1]
        is_constant = isinstance(subtrahend, Constant) and subtrahend.type.dtype == "float64"
        return replace(binding, operands=binding.operands[::-1]) if is_constant else binding

    return replace(function, bindings=tuple(map(change, function.bindings)))


def _takes_another_activation(function: Function) -> Function:
    """Replace an op by another within a composite only."""
    exp = default_ops()["exp"]

    def change_body(body: Function) -> Function:
        bindings = (replace(item, op=exp) if item.op.name == "nn.relu" else item for item in body.bindings)
        return replace(body, bindings=tuple(bindings))

    def change(binding: Binding) -> Binding:
        return replace(binding, regions=tuple(map(change_body, binding.regions))) if binding.regions else binding

    return replace(function, bindings=tuple(map(change, function.bindings)))


def _squares_for_relu(function: Function) -> Function:
    """Replace an op by another if the backend has four or more to arrange."""
    if len(function.bindings) < 4:
        return function
    multiply = default_ops()["multiply"]
    bindings = (
        replace(binding, op=multiply, operands=binding.operands * 2) if binding.op.name == "nn.relu" else binding
        for binding in function.bindings
    )
    return replace(function, bindings=tuple(bindings))


def _subtracts_behind_a_batch(function: Function) -> Function:
    """Compile ``x + y`` as ``x - y`` behind a dense layer of a batch of matrices."""
    batches = {
        id(binding.results[0])
        for binding in function.bindings
        if binding.op.name == "nn.dense" and len(getattr(binding.results[0].type, "shape", ())) == 3
    }
    subtract = default_ops()["subtract"]

    def change(binding: Binding) -> Binding:
        is_behind = binding.op.name == "add" and any(id(operand) in batches for operand in binding.operands)
        return replace(binding, op=subtract) if is_behind else binding

    return replace(function, bindings=tuple(map(change, function.bindings)))


FAULTS: Mapping[str, Fault] = {
    "misses-by-little-in-its-own-op": Fault(
        frozenset({"L2-own-ops"}), run_half=_kernel("fakenpu.double", _in_float64(_misses_by_a_unit))
    ),
    "last-lane": Fault(OP, run_half=_kernel("add", _in_float64(_loses_last_lane))),
    "odd-sizes": Fault(OP, run_half=_kernel("multiply", _in_float64(_wrong_for_odd_sizes))),
    "swapped-operands": Fault(OP, run_half=_kernel("subtract", _in_float64(_swapped))),
    "broadcast": Fault(OP, run_half=_kernel("add", _broadcasts_first_channel), also=BLOCKS),
    "ignored-attribute": Fault(OP, run_half=_kernel("concat", _in_float64(_ignores_axis))),
    "coarse-function": Fault(OP, run_half=_kernel("exp", _in_float64(_in_single_precision))),
    "coarse-sum": Fault(OP, run_half=_kernel("nn.dense", _in_float64(_in_single_precision))),
    "integers-as-floats": Fault(OP, run_half=_kernel("add", _adds_as_floats)),
    "lost-nan": Fault(OP, run_half=_kernel("nn.relu", _loses_nan), also=BLOCKS),
    "saturates": Fault(OP, run_half=_kernel("exp", _saturates)),
    "constant-operand": Fault(OP, compile_half=_rewriting(_takes_constants_negative)),
    "negative-axis": Fault(OP, run_half=_kernel("nn.softmax", _always(_takes_any_negative_axis_for_the_last))),
    "several-axes": Fault(OP, run_half=_kernel("nn.layer_norm", _always(_normalises_over_the_last_axis))),
    "overhanging-window": Fault(OP, run_half=_kernel("nn.avg_pool2d", _always(_counts_what_hangs_over))),
    "backwards-past-the-end": Fault(OP, run_half=_kernel("strided_slice", _always(_stops_at_the_first))),
    "writes-its-input": Fault(OP, run_half=_kernel("nn.relu", _in_float64(_writes_its_input))),
    "flushes-its-input": Fault(OP, run_half=_kernel("exp", _in_float64(_flushes_its_input))),
    "sizes-of-the-first-call": Fault(OP, run_half=_keeps_first_sizes),
    "stated-too-coarse": Fault(frozenset({"L2-stated-precision"}), compile_half=_states({"float32": 2.0**-5})),
    "stated-too-fine": Fault(frozenset({"L2-stated-precision"}), compile_half=_states({"float32": 2.0**-30})),
    # Nothing is wrong with a backend that says how coarse it is.
    "coarse-and-stated": Fault(
        frozenset(),
        compile_half=_states({"float64": 2.0**-24}),
        run_half=_kernel("nn.dense", _in_float64(_in_single_precision)),
    ),
    "coarse-op-and-stated": Fault(
        frozenset(),
        compile_half=_states({"nn.dense:float64": 2.0**-24}),
        run_half=_kernel("nn.dense", _in_float64(_in_single_precision)),
    ),
    "coarser-op-than-stated": Fault(
        OP,
        compile_half=_states({"nn.dense:float64": 2.0**-40, "add:float64": 2.0**-24}),
        run_half=_kernel("nn.dense", _in_float64(_in_single_precision)),
    ),
    "op-stated-too-coarse": Fault(frozenset({"L2-stated-precision"}), compile_half=_states({"exp:float32": 2.0**-5})),
    # Nothing is wrong with a backend of finite numbers that says so; its finite numbers are judged.
    "finite-only-and-stated": Fault(
        frozenset(), compile_half=_declares(finite_only=True), run_half=_kernel("nn.relu", _loses_nan)
    ),
    "finite-only-and-wrong": Fault(
        OP, compile_half=_declares(finite_only=True), run_half=_kernel("add", _in_float64(_loses_last_lane))
    ),
    "states-its-smallest-region": Fault(frozenset(), compile_half=_declares(min_region_flops=10**9)),
    # Judged in strides, the composite is as wrong as elsewhere.
    "composite": Fault(
        frozenset({"L2-pattern"}),
        compile_half=_rewriting(_takes_another_activation),
        also=frozenset({"L4-permitted-strides"}),
    ),
    "onnx-shape": Fault(frozenset({"L2-onnx"}), run_half=_kernel("add", _wrong_in_one_shape)),
    "block": Fault(frozenset({"L2-blocks"}), compile_half=_rewriting(_subtracts_behind_a_batch)),
    "long-graph": Fault(frozenset({"L2-random-graphs"}), compile_half=_rewriting(_squares_for_relu)),
}
