"""A layer: a product of matrices or a convolution, with a bias and ReLU if these follow; or the reason against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, product
from byoc_core.ir import COMPOSITE, AttrValue, Binding, TensorType, Value, Var

from byoc_cblas.source import C_TYPES

__all__ = ["PRODUCTS", "Layer", "find_layer", "read_layer", "shape_of"]

PRODUCTS = ("nn.dense", "matmul", "nn.conv2d")
"""The ops at the beginning of a layer."""

_MAX_SIZE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer.

    Attributes:
        op: the name of the product or convolution.
        attrs: the attributes of the op.
        x: the first operand.
        weight: the second operand.
        bias: the values added to each row or channel, one-dimensional but for axes of size 1; ``None`` without.
        relu: whether ReLU is the last op.
        result: the result of the last op.
    """

    op: str
    attrs: Mapping[str, AttrValue]
    x: Value
    weight: Value
    bias: Value | None
    relu: bool
    result: Var

    @property
    def dtype(self) -> str:
        """The dtype of all tensors."""
        return _tensor(self.result).dtype


def find_layer(binding: Binding) -> Layer | Rejection:
    """Return the layer of a binding of a region, a single op or a composite, or the reason against."""
    if binding.op is not COMPOSITE:
        return read_layer([binding])
    (body,) = binding.regions
    layer = read_layer(body.bindings)
    if isinstance(layer, Rejection):
        return layer
    outer: dict[Value, Value] = dict(zip(body.params, binding.operands, strict=True))
    bias = None if layer.bias is None else outer.get(layer.bias, layer.bias)
    x, weight = outer.get(layer.x, layer.x), outer.get(layer.weight, layer.weight)
    return replace(layer, x=x, weight=weight, bias=bias, result=binding.result)


def read_layer(bindings: Sequence[Binding]) -> Layer | Rejection:
    """Return the layer of a product, perhaps a bias, and perhaps ReLU, or the reason why there is no such layer."""
    first, *epilogue = bindings
    if first.op.name not in PRODUCTS:
        return Rejection("op", f"`{first.op.name}` is no product of matrices")
    rejection = _check_tensors(bindings) or (
        _check_convolution(first) if first.op.name == "nn.conv2d" else _check_product(first)
    )
    if rejection is not None:
        return rejection
    bias: Value | None = None
    if epilogue and epilogue[0].op.name in ("nn.bias_add", "add"):
        found = _find_bias(first, epilogue.pop(0))
        if isinstance(found, Rejection):
            return found
        bias = found
    relu = bool(epilogue) and epilogue.pop(0).op.name == "nn.relu"
    if epilogue:
        return Rejection("structural", f"`{epilogue[0].op.name}` cannot follow in the same call")
    return Layer(first.op.name, first.attrs, first.operands[0], first.operands[1], bias, relu, bindings[-1].result)


def shape_of(value: Value) -> tuple[Dim, ...]:
    """Return the sizes of a tensor of known rank."""
    shape = _tensor(value).shape
    assert shape is not None  # other tensors are refused before
    return shape


def _tensor(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType)  # other values are refused before
    return value.type


def _check_tensors(bindings: Sequence[Binding]) -> Rejection | None:
    dtype = None
    for binding in bindings:
        for value in (*binding.operands, *binding.results):
            type_ = value.type
            if not isinstance(type_, TensorType) or type_.shape is None:
                return Rejection("type", f"`{binding.op.name}`: a tensor of known rank is needed, got {type_}")
            if type_.dtype not in C_TYPES or type_.dtype != (dtype or type_.dtype):
                return Rejection(
                    "dtype", f"`{binding.op.name}`: a BLAS computes float32 and float64, got {type_.dtype}"
                )
            dtype = type_.dtype
            if type_.oversized_axis is not None:
                return Rejection("size", f"`{binding.op.name}`: a tensor exceeds the largest array")
    return None


def _check_product(binding: Binding) -> Rejection | None:
    x, y = map(shape_of, binding.operands)
    for left, right in zip(reversed(x[:-2]), reversed(y[:-2]), strict=False):
        if left != right and 1 not in (left, right):
            return Rejection("broadcasting", f"`matmul`: unknown whether axes of sizes {left} and {right} are equal")
    inner = y[-1] if binding.op.name == "nn.dense" else y[max(0, len(y) - 2)]
    return _check_equal(binding, x[-1], inner) or _check_sizes(binding, (*x, *y, product(x[:-1])))


def _check_convolution(binding: Binding) -> Rejection | None:
    attrs = binding.attrs
    weight = shape_of(binding.operands[1])
    if not all(isinstance(size, int) for size in weight):
        return Rejection("size", "`nn.conv2d`: filters of symbolic size are not supported")
    if attrs["kernel_layout"] not in ("OIHW", "HWIO"):
        return Rejection("layout", f"`nn.conv2d`: filters in {attrs['kernel_layout']} are no matrix")
    image, result = shape_of(binding.operands[0]), shape_of(binding.result)
    channel = 1 if attrs["data_layout"] == "NCHW" else 3
    inner = weight[1] if attrs["kernel_layout"] == "OIHW" else weight[2]
    groups = attrs["groups"]
    assert isinstance(groups, int)
    areas = [product(size for axis, size in enumerate(shape) if axis not in (0, channel)) for shape in (image, result)]
    sizes = (*image, *result, *areas, product(weight))
    return _check_equal(binding, image[channel], inner * groups) or _check_sizes(binding, sizes)


def _check_equal(binding: Binding, left: Dim, right: Dim) -> Rejection | None:
    if left != right:
        return Rejection("size", f"`{binding.op.name}`: unknown whether the sizes {left} and {right} are equal")
    return None


def _check_sizes(binding: Binding, sizes: Sequence[Dim]) -> Rejection | None:
    largest = max((size for size in sizes if isinstance(size, int)), default=0)
    if largest > _MAX_SIZE:
        return Rejection("size", f"`{binding.op.name}`: the size {largest} has more than 31 bits")
    return None


def _find_bias(first: Binding, addition: Binding) -> Value | Rejection:
    """Return the operand added to a product, or the reason why the operand is no bias."""
    operands = [value for value in addition.operands if value is not first.result]
    if len(operands) != 1:
        return Rejection("bias", "the product is added to itself")
    sizes = shape_of(first.result)
    channel = 1 if first.attrs.get("data_layout") == "NCHW" else len(sizes) - 1
    if first.op.name == "matmul" and len(shape_of(first.operands[1])) == 1:
        return Rejection("bias", "`matmul`: the result has no columns for a bias")
    if addition.op.name == "nn.bias_add":
        axis = addition.attrs["axis"]
        is_bias = isinstance(axis, int) and axis % len(sizes) == channel
        is_bias = is_bias and shape_of(operands[0]) == (sizes[channel],)
    else:
        shape = shape_of(operands[0])
        aligned = (1,) * (len(sizes) - len(shape)) + shape
        is_bias = aligned == tuple(size if axis == channel else 1 for axis, size in enumerate(sizes))
    if not is_bias:
        return Rejection("bias", f"`{addition.op.name}`: the operand is no value for each index of axis {channel}")
    return operands[0]
