"""Tensors of strings: movement of elements, and the strings in order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_name
from byoc_core.frontend.onnx.node_context import Imported, NodeContext
from byoc_core.frontend.onnx.ops.data_dependent import emit_sized
from byoc_core.frontend.onnx.ops.data_sizes import size_value
from byoc_core.frontend.onnx.sequence_value import STRING
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.ir.module import Value

__all__ = [
    "STRUCTURES",
    "Movement",
    "adds_zeros",
    "element_dtype",
    "emit_key_index",
    "in_order",
    "join",
    "keeps_order",
    "moves_elements",
    "read_strings",
    "read_tensor",
    "reads_shape",
    "stack",
    "to_tensor",
]

_MOVING = frozenset(
    {
        *(
            "Compress",
            "Concat",
            "DepthToSpace",
            "Expand",
            "Flatten",
            "Gather",
            "GatherElements",
            "GatherND",
            "Identity",
        ),
        *("OneHot", "Reshape", "ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth"),
        *("Split", "Squeeze", "TensorScatter", "Tile", "Transpose", "Unsqueeze", "Where"),
    }
)
_ORDERLY = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_PADDING = frozenset({"CenterCropPad", "Pad", "Trilu"})
_SHAPE_READING = frozenset({"RandomNormalLike", "RandomUniformLike", "Shape", "Size"})

STRUCTURES = frozenset(
    {
        *("If", "Loop", "Scan", "Optional", "OptionalGetElement", "OptionalHasElement"),
        *("SequenceConstruct", "SequenceInsert", "SequenceMap", "SplitToSequence"),
    }
)
"""The operators that take tensors of strings among values of any kind."""


def moves_elements(node: NodeContext) -> bool:
    """Return whether a node only moves elements, adds zeros, or reads the shape."""
    if node.domain:
        return (node.domain, node.op_type) == ("ai.onnx.ml", "ArrayFeatureExtractor")
    if node.op_type in ("Resize", "Upsample"):
        mapping = node.attr_string("coordinate_transformation_mode", "half_pixel")
        return node.attr_string("mode", "nearest") == "nearest" and mapping != "tf_crop_and_resize"
    moves = node.op_type in _MOVING and node.attr_string("reduction", "none") == "none"
    return moves or node.op_type in _PADDING or reads_shape(node)


def keeps_order(node: NodeContext) -> bool:
    """Return whether a node that moves elements keeps all elements in order."""
    return not node.domain and node.op_type in _ORDERLY


def adds_zeros(node: NodeContext) -> bool:
    """Return whether a node that moves elements may add zeros: empty strings among strings."""
    return not node.domain and node.op_type in _PADDING


def reads_shape(node: NodeContext) -> bool:
    """Return whether a node reads only the shape of its input."""
    return not node.domain and node.op_type in _SHAPE_READING


class Movement:
    """Tensors with elements to be moved together, as tensors of numbers: strings are numbers in a common pool.

    Args:
        node: the node that moves the elements.
        tensors: the tensors: all of numbers, or all of strings.
        keeps_order: whether all elements of the only tensor stay in order. Strings in order then need no numbers.

    Attributes:
        values: a tensor of numbers for each tensor.

    Raises:
        FrontendError: some tensors are of numbers, and others of strings.
    """

    def __init__(
        self, node: NodeContext, tensors: Sequence[Value | StringTensor], *, keeps_order: bool = False
    ) -> None:
        self._node = node
        self._pool: tuple[Value, Value] | None = None
        self._data: Value | None = None
        if keeps_order and len(tensors) == 1 and isinstance(tensors[0], StringTensor) and tensors[0].index is None:
            self._data, self.values = tensors[0].data, [tensors[0].lengths]
            return
        self.values = [tensor for tensor in tensors if not isinstance(tensor, StringTensor)]
        strings = [tensor for tensor in tensors if isinstance(tensor, StringTensor)]
        if strings:
            if self.values:
                raise node.error("joins strings and numbers")
            self._open_pool(strings)

    def _open_pool(self, tensors: Sequence[StringTensor]) -> None:
        node = self._node
        rows = [node.reshape(tensor.lengths, (product(node.shape_of(tensor.lengths)),)) for tensor in tensors]
        first: Dim = 0
        for tensor, lengths in zip(tensors, rows, strict=True):
            self.values.append(self._shifted(tensor, first))
            first = first + node.shape_of(lengths)[0]
        self._pool = _joined(node, [tensor.data for tensor in tensors]), _joined(node, rows)

    def _shifted(self, tensor: StringTensor, first: Dim) -> Value:
        node = self._node
        if tensor.index is None:
            shape = node.shape_of(tensor.lengths)
            return node.reshape(node.emit("arange", start=first, stop=first + product(shape)), shape)
        if first == 0:
            return tensor.index
        return node.emit("add", tensor.index, size_value(node, first))

    def result(self, moved: Imported) -> Value | StringTensor:
        """Return the tensor with moved elements, from the tensor of numbers."""
        value = self._node.to_value(moved, "moved elements")
        if self._data is not None:
            return StringTensor(self._data, value)
        return value if self._pool is None else StringTensor(*self._pool, value)


def to_tensor(node: NodeContext, form: Imported, subject: str) -> Value | StringTensor:
    """Return a form as a tensor of numbers or of strings; ``subject`` is the name in messages.

    Raises:
        FrontendError: the form is another.
    """
    return form if isinstance(form, StringTensor) else node.to_value(form, subject)


def read_tensor(node: NodeContext, index: int) -> Value | StringTensor:
    """Return an input, a tensor of numbers or of strings.

    Raises:
        FrontendError: the input is another.
    """
    form = node.imported(index)
    return form if isinstance(form, StringTensor) else node.value(index)


def element_dtype(node: NodeContext, tensor: Imported) -> str:
    """Return the dtype of a tensor; ``STRING`` for strings.

    Raises:
        FrontendError: the form is no tensor.
    """
    if isinstance(tensor, StringTensor):
        return STRING
    if isinstance(tensor, ShapeValue):
        return tensor.dtype
    if isinstance(tensor, np.ndarray):
        return dtype_name(tensor.dtype)
    return node.tensor_type(node.to_value(tensor, "a tensor")).dtype


def join(node: NodeContext, tensors: Sequence[Value | StringTensor]) -> Value | StringTensor:
    """Return the elements of tensors one after the other, each in row-major order; strings in order, without numbers.

    Raises:
        FrontendError: some tensors are of numbers, and others of strings.
    """
    strings = [in_order(node, tensor) for tensor in tensors if isinstance(tensor, StringTensor)]
    values = [tensor for tensor in tensors if not isinstance(tensor, StringTensor)]
    if strings and values:
        raise node.error("joins strings and numbers")
    rows = [
        node.reshape(value, (product(node.shape_of(value)),)) for value in values or [text.lengths for text in strings]
    ]
    joined = _joined(node, rows)
    return StringTensor(_joined(node, [text.data for text in strings]), joined) if strings else joined


def stack(node: NodeContext, tensors: Sequence[Value | StringTensor]) -> Value | StringTensor:
    """Return tensors of equal shapes, stacked along a new first axis.

    Raises:
        FrontendError: the tensors differ in dtype or shape.
    """
    movement = Movement(node, tensors)
    return movement.result(node.stack(movement.values))


def in_order(node: NodeContext, tensor: StringTensor) -> StringTensor:
    """Return the tensor with its strings in order, without numbers."""
    if tensor.index is None:
        return tensor
    shape = node.shape_of(tensor.index)
    flat = node.reshape(tensor.index, (product(shape),))
    (data,) = emit_sized(node, "ragged_take", tensor.data, tensor.lengths, flat)
    return StringTensor(data, node.reshape(node.emit("take", tensor.lengths, flat, axis=0), shape))


def read_strings(node: NodeContext, index: int) -> StringTensor:
    """Return an input of strings with the strings in order, without numbers.

    Raises:
        FrontendError: the input is no tensor of strings.
    """
    form = node.imported(index)
    if not isinstance(form, StringTensor):
        raise node.error(f"needs `{node.input_names[index]}` as a tensor of strings")
    return in_order(node, form)


def emit_key_index(node: NodeContext, strings: StringTensor, keys: StringTensor) -> Value:
    """Return the index of the first key equal to each string, int64; the number of keys if none is equal.

    Args:
        node: the node in need of the indices.
        strings: the strings, in any shape.
        keys: the keys, in order, a vector.
    """
    index: Value = node.emit("strings.key_index", strings.data, strings.lengths, keys.data, keys.lengths)
    return index if strings.index is None else node.emit("take", index, strings.index, axis=0)


def _joined(node: NodeContext, values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else node.emit("concat", *values, axis=0)
