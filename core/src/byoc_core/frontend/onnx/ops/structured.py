"""The tensors of sequences and optional values, where these cross the border of a graph, a branch or a round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext
from byoc_core.frontend.onnx.ops.strings import element_dtype, in_order, join, to_tensor
from byoc_core.frontend.onnx.sequence_value import (
    STRING,
    MapSequence,
    MapValue,
    OptionalValue,
    RunTimeSequence,
    SequenceValue,
)
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.ir.constants import Constant
from byoc_core.ir.module import Value, Var
from byoc_core.runtime.value_forms import OPTIONAL, SUFFIXES

__all__ = ["alike", "as_run_time_sequence", "form_name", "from_parts", "part_names", "to_parts", "with_values"]


def as_run_time_sequence(
    node: NodeContext, sequence: SequenceValue | RunTimeSequence, *, empty_rank: int = 0
) -> RunTimeSequence:
    """Return a sequence as tensors; a list without tensors gets the rank ``empty_rank``.

    Raises:
        FrontendError: the elements differ in dtype or rank.
    """
    if isinstance(sequence, RunTimeSequence):
        return sequence
    tensors = [to_tensor(node, element, "a sequence element") for element in sequence.elements]
    if not tensors:
        shapes = node.constant(np.zeros((0, empty_rank), np.int64))
        return RunTimeSequence(_empty(node, sequence.dtype or "float32", 1), shapes)
    kinds = [(element_dtype(node, tensor), len(node.shape_of(tensor))) for tensor in tensors]
    for tensor, kind in zip(tensors, kinds, strict=True):
        if kind != kinds[0]:
            raise node.error(
                "has a sequence of tensors that differ in dtype or rank",
                got=_type_text(tensor),
                expected=f"like {_type_text(tensors[0])}",
            )
    dims = [node.shape_of(tensor) for tensor in tensors]
    rows = [node.to_value(ShapeValue(shape, shape=(1, len(shape))), "a shape") for shape in dims]
    return RunTimeSequence(join(node, tensors), rows[0] if len(rows) == 1 else node.emit("concat", *rows, axis=0))


def _type_text(tensor: Value | StringTensor) -> str:
    return str(tensor) if isinstance(tensor, StringTensor) else str(tensor.type)


def alike(inner: Sequence[NodeContext], forms: Sequence[Imported], subject: str) -> list[Imported]:
    """Return the forms of one value from several branches or rounds in the same kind: tensor, sequence or optional.

    Args:
        inner: the node from the perspective of each branch.
        forms: the forms.
        subject: the name of the value, for messages.

    Raises:
        FrontendError: a form is a tensor and another a sequence.
    """
    if any(isinstance(form, OptionalValue) for form in forms):
        return _alike_optionals(inner, forms, subject)
    for kind, text in ((StringTensor, "strings"), (MapSequence, "maps"), (MapValue, "a map")):
        if len({isinstance(form, kind) for form in forms}) > 1:
            raise inner[0].error(f"has {subject} as {text} in one place, and as another kind of value in another")
    are_sequences = [isinstance(form, SequenceValue | RunTimeSequence) for form in forms]
    if not any(are_sequences):
        return list(forms)
    if not all(are_sequences):
        raise inner[0].error(f"has {subject} as a tensor in one place, and as a sequence in another")
    sequences = [form for form in forms if isinstance(form, SequenceValue | RunTimeSequence)]
    if len({sequence.has_strings for sequence in sequences}) > 1:
        raise inner[0].error(f"has {subject} as a sequence of strings in one place, and of numbers in another")
    pairs = list(zip(inner, sequences, strict=True))
    ranks = (_rank_of(node, sequence) for node, sequence in pairs)
    rank = next((rank for rank in ranks if rank is not None), 0)
    return [as_run_time_sequence(node, sequence, empty_rank=rank) for node, sequence in pairs]


def _rank_of(node: NodeContext, sequence: SequenceValue | RunTimeSequence) -> int | None:
    """Return the rank of the tensors in a sequence, if known; a list without tensors has none."""
    if isinstance(sequence, SequenceValue):
        return len(node.shape_of(to_tensor(node, sequence.elements[0], "an element"))) if sequence.elements else None
    rank = node.shape_of(sequence.shapes)[1]
    return rank if isinstance(rank, int) else None


def _alike_optionals(inner: Sequence[NodeContext], forms: Sequence[Imported], subject: str) -> list[Imported]:
    optionals = [form if isinstance(form, OptionalValue) else OptionalValue(True, form) for form in forms]
    values = [optional.value for optional in optionals]
    nodes = [node for node, value in zip(inner, values, strict=True) if value is not None]
    present = alike(nodes, [value for value in values if value is not None], subject) if nodes else []
    if present:
        found = iter(present)
        values = [
            _absent_like(node, present[0]) if value is None else next(found)
            for node, value in zip(inner, values, strict=True)
        ]
    return [
        OptionalValue(_as_flag(node, optional.is_present), value)
        for node, optional, value in zip(inner, optionals, values, strict=True)
    ]


def _as_flag(node: NodeContext, is_present: bool | Value) -> Value:
    return node.constant(np.array(is_present)) if isinstance(is_present, bool) else is_present


def _absent_like(node: NodeContext, example: Imported) -> Imported:
    """Return tensors without elements, of the dtypes and ranks of an example from another branch or round."""
    if isinstance(example, MapValue):
        return MapValue(_empty_like(node, example.keys), _empty_like(node, example.values))
    if isinstance(example, MapSequence):
        no_values = np.zeros((0, 0), to_numpy(node.tensor_type(example.values).dtype))
        return MapSequence(_empty_like(node, example.keys), node.constant(no_values))
    if isinstance(example, RunTimeSequence):
        rank = node.shape_of(example.shapes)[1]
        shapes = node.constant(np.zeros((0, rank if isinstance(rank, int) else 0), np.int64))
        return RunTimeSequence(_empty_like(node, example.elements), shapes)
    return _empty_like(node, to_tensor(node, example, "an optional value"))


def _empty_like(node: NodeContext, example: Value | StringTensor) -> Value | StringTensor:
    return _empty(node, element_dtype(node, example), len(node.shape_of(example)))


def _empty(node: NodeContext, dtype: str, rank: int) -> Value | StringTensor:
    """Return a tensor with a size of 0 in each axis; without axes, of a single zero or empty string."""
    shape = (0,) * rank
    if dtype == STRING:
        return StringTensor(node.constant(np.zeros(0, np.uint8)), node.constant(np.zeros(shape, np.int64)))
    return node.constant(np.zeros(shape, to_numpy(dtype)))


def to_parts(node: NodeContext, form: Imported, subject: str) -> list[Value]:
    """Return the tensors of a form.

    A tensor is one, strings are two. A sequence of tensors is the tensors of the elements and one of the shapes; a map
    or a sequence of maps is the tensors of the keys and of the values. An optional value is one more.
    """
    if isinstance(form, OptionalValue):
        flag = _as_flag(node, form.is_present)
        return [flag, *([] if form.value is None else to_parts(node, form.value, subject))]
    if isinstance(form, SequenceValue | RunTimeSequence):
        sequence = as_run_time_sequence(node, form)
        return [*to_parts(node, sequence.elements, subject), sequence.shapes]
    if isinstance(form, StringTensor):
        strings = in_order(node, form)
        return [strings.data, strings.lengths]
    if isinstance(form, MapSequence | MapValue):
        return [*to_parts(node, form.keys, subject), *to_parts(node, form.values, subject)]
    return [node.to_value(form, subject)]


def from_parts(form: Imported, parts: Iterator[Value]) -> Imported:
    """Return a form of the same kind as an example, of other tensors."""
    if isinstance(form, OptionalValue):
        flag = next(parts)
        return OptionalValue(flag, None if form.value is None else from_parts(form.value, parts))
    if isinstance(form, SequenceValue | RunTimeSequence):
        return RunTimeSequence(_tensor_of(parts, has_strings=form.has_strings), next(parts))
    if isinstance(form, MapSequence):
        return MapSequence(_tensor_of(parts, has_strings=isinstance(form.keys, StringTensor)), next(parts))
    if isinstance(form, MapValue):
        keys, values = (
            _tensor_of(parts, has_strings=isinstance(tensor, StringTensor)) for tensor in (form.keys, form.values)
        )
        return MapValue(keys, values)
    return _tensor_of(parts, has_strings=isinstance(form, StringTensor))


def _tensor_of(parts: Iterator[Value], *, has_strings: bool) -> Value | StringTensor:
    return StringTensor(next(parts), next(parts)) if has_strings else next(parts)


def form_name(form: Imported) -> str:
    """Return the name of a form, a key of :data:`byoc_core.runtime.value_forms.SUFFIXES`."""
    if isinstance(form, OptionalValue):
        return OPTIONAL + ("nothing" if form.value is None else form_name(form.value))
    if isinstance(form, SequenceValue | RunTimeSequence):
        return "sequence of strings" if form.has_strings else "sequence"
    if isinstance(form, StringTensor):
        return "strings"
    if isinstance(form, MapSequence):
        return "maps by string" if isinstance(form.keys, StringTensor) else "maps"
    if isinstance(form, MapValue):
        of_strings = " of strings" if isinstance(form.values, StringTensor) else ""
        return f"map{of_strings}{' by string' if isinstance(form.keys, StringTensor) else ''}"
    return "tensor"


def part_names(form: Imported, name: str) -> list[str]:
    """Return a name for each tensor of a form: the name alone for a tensor."""
    return [name + suffix for suffix in SUFFIXES[form_name(form)]]


def with_values(form: Imported, change: Callable[[Value], Value]) -> Imported:
    """Return a form with all its IR values changed; parts known during import stay."""
    if isinstance(form, SequenceValue):
        return replace(form, elements=tuple(with_values(element, change) for element in form.elements))
    if isinstance(form, RunTimeSequence):
        return RunTimeSequence(_with_values(form.elements, change), change(form.shapes))
    if isinstance(form, MapSequence):
        return MapSequence(_with_values(form.keys, change), change(form.values))
    if isinstance(form, MapValue):
        return MapValue(_with_values(form.keys, change), _with_values(form.values, change))
    if isinstance(form, OptionalValue):
        flag = form.is_present if isinstance(form.is_present, bool) else change(form.is_present)
        return OptionalValue(flag, None if form.value is None else with_values(form.value, change))
    return _with_values(form, change) if isinstance(form, Var | Constant | StringTensor) else form


def _with_values(tensor: Value | StringTensor, change: Callable[[Value], Value]) -> Value | StringTensor:
    if not isinstance(tensor, StringTensor):
        return change(tensor)
    index = None if tensor.index is None else change(tensor.index)
    return StringTensor(change(tensor.data), change(tensor.lengths), index)
