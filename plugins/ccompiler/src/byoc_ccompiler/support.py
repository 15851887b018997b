"""What the backend takes, op by op, and why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from byoc_core.authoring.csource_scalars import SCALAR_OPS
from byoc_core.authoring.csource_types import C_TYPES
from byoc_core.backend.info import Rejection
from byoc_core.dims import Dim, product
from byoc_core.ir import Binding, TensorType

from byoc_ccompiler.grouping import POINTWISE, Step
from byoc_ccompiler.movement import MOVEMENTS
from byoc_ccompiler.pointwise import step_expression
from byoc_ccompiler.pooling import POOLS
from byoc_ccompiler.reductions import REDUCTIONS

__all__ = ["reject_step"]

_FLOATS = ("float32", "float64")


def reject_step(binding: Binding, *, tutorial: bool) -> Rejection | None:
    """Gives the reason why one op cannot be compiled, or ``None`` where it can.

    Args:
        binding: the op.
        tutorial: whether the plain form is asked for, which knows elementwise ops only.
    """
    name = binding.op.name
    if tutorial and name not in SCALAR_OPS:
        return Rejection("tutorial", f"the tutorial form has no kernel for {name}; it knows elementwise ops only")
    if name not in POINTWISE and name not in _OTHERS:
        return Rejection("op", f"there is no C kernel for {name}")
    for value in (*binding.operands, *binding.results):
        if not isinstance(value.type, TensorType):
            return Rejection("type", f"{name} has an operand that is not a tensor")
        if value.type.shape is None:
            return Rejection("rank", f"{name} has an operand of unknown rank")
        if value.type.dtype not in C_TYPES:
            return Rejection("dtype", f"C has no type for {value.type.dtype}")
    reason = _OTHERS[name](binding) if name in _OTHERS else _reject_pointwise(binding)
    return reason or _reject_symbols(binding)


def _type(binding: Binding, index: int) -> TensorType:
    type_ = binding.operands[index].type
    assert isinstance(type_, TensorType)
    return type_


def _shape(binding: Binding, index: int) -> tuple[Dim, ...]:
    return _type(binding, index).shape or ()


def _reject_symbols(binding: Binding) -> Rejection | None:
    """Refuses a result whose size no operand gives: the C function could not find it."""
    known: set[str] = set()
    for operand in binding.operands:
        if isinstance(operand.type, TensorType):
            known |= operand.type.symbols
    for result in binding.results:
        unknown = result.type.symbols - known if isinstance(result.type, TensorType) else frozenset[str]()
        if unknown:
            return Rejection("dynamic-shape", f"no operand gives the size `{min(unknown)}` of the result")
    return None


def _reject_pointwise(binding: Binding) -> Rejection | None:
    step = Step(binding, binding.operands)
    if step_expression(step, [f"v{k}" for k in range(len(binding.operands))]) is None:
        dtypes = ", ".join(_type(binding, k).dtype for k in range(len(binding.operands)))
        return Rejection("dtype", f"{binding.op.name} has no C form for {dtypes}")
    if binding.op.name in ("nn.bias_add", "nn.batch_norm"):
        shape = _shape(binding, 0)
        size = shape[int(str(binding.attrs["axis"])) % len(shape)]
        if any(_shape(binding, index) != (size,) for index in range(1, len(binding.operands))):
            return _reject_sizes(binding)
    return None


def _reject_sizes(binding: Binding) -> Rejection:
    return Rejection("dynamic-shape", f"whether the sizes of {binding.op.name} agree shows only when it runs")


def _reject_dtype(binding: Binding) -> Rejection | None:
    dtype = _type(binding, 0).dtype
    if dtype not in _FLOATS:
        return Rejection("dtype", f"{binding.op.name} is compiled for {' and '.join(_FLOATS)}, not for {dtype}")
    return None


def _reject_conv2d(binding: Binding) -> Rejection | None:
    if binding.attrs["data_layout"] != "NCHW":
        return Rejection("layout", f"nn.conv2d is compiled for the layout NCHW, not for {binding.attrs['data_layout']}")
    channels = (_type(binding, 0).shape or ())[1]
    weight = _type(binding, 1)
    if weight.symbols or not isinstance(channels, int):
        return Rejection("dynamic-shape", "nn.conv2d is compiled for a known number of channels and a known filter")
    if 0 in (weight.shape or ()):
        return Rejection("shape", "nn.conv2d has a filter without elements")
    return _reject_dtype(binding)


def _reject_matmul(binding: Binding) -> Rejection | None:
    if min(len(_type(binding, k).shape or ()) for k in (0, 1)) < 2:
        return Rejection("rank", "matmul is compiled for operands of two or more axes")
    if _shape(binding, 0)[-1] != _shape(binding, 1)[-2]:
        return _reject_sizes(binding)
    return _reject_dtype(binding)


def _reject_dense(binding: Binding) -> Rejection | None:
    if _shape(binding, 0)[-1] != _shape(binding, 1)[1]:
        return _reject_sizes(binding)
    return _reject_dtype(binding)


def _reject_pool(binding: Binding) -> Rejection | None:
    if binding.attrs["layout"] != "NCHW":
        layout = binding.attrs["layout"]
        return Rejection("layout", f"{binding.op.name} is compiled for the layout NCHW, not for {layout}")
    return None if binding.op.name == "nn.max_pool2d" else _reject_dtype(binding)


def _reject_reduction(binding: Binding) -> Rejection | None:
    dtype = _type(binding, 0).dtype
    return Rejection("dtype", f"{binding.op.name} has no C form for bool") if dtype == "bool" else None


def _reject_movement(binding: Binding) -> Rejection | None:
    """Refuses sizes that only running shows to agree: the C code copies without looking."""
    shapes = [_shape(binding, index) for index in range(len(binding.operands))]
    agrees = True
    if binding.op.name == "reshape":
        (result,) = binding.results
        agrees = isinstance(result.type, TensorType) and result.type.num_elements == product(shapes[0])
    elif binding.op.name in ("split", "concat"):
        axis = int(str(binding.attrs["axis"])) % len(shapes[0])
        parts = [r.type.shape or () for r in binding.results if isinstance(r.type, TensorType)]
        if binding.op.name == "split":
            agrees = sum((part[axis] for part in parts), start=0) == shapes[0][axis]
        else:
            agrees = len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) == 1
    return None if agrees else _reject_sizes(binding)


_OTHERS: Mapping[str, Callable[[Binding], Rejection | None]] = {
    "nn.conv2d": _reject_conv2d,
    "nn.dense": _reject_dense,
    "matmul": _reject_matmul,
    "nn.softmax": _reject_dtype,
    **dict.fromkeys(POOLS, _reject_pool),
    **dict.fromkeys(REDUCTIONS, _reject_reduction),
    **dict.fromkeys(MOVEMENTS, _reject_movement),
}
