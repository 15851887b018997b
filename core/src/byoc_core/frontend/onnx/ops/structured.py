"""The tensors of sequences and optional values, where these cross the border of a graph, a branch or a round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext
from byoc_core.frontend.onnx.ops.strings import in_order
from byoc_core.frontend.onnx.sequence_value import MapSequence, OptionalValue, RunTimeSequence, SequenceValue
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.ir.module import Value
from byoc_core.runtime.value_forms import OPTIONAL, SUFFIXES

__all__ = ["alike", "as_run_time_sequence", "form_name", "from_parts", "part_names", "to_parts"]


def as_run_time_sequence(
    node: NodeContext, sequence: SequenceValue | RunTimeSequence, *, empty_rank: int = 0
) -> RunTimeSequence:
    """Return a sequence as tensors; a list without tensors gets the rank ``empty_rank``.

    Raises:
        FrontendError: the elements differ in dtype or rank.
    """
    if isinstance(sequence, RunTimeSequence):
        return sequence
    values = [node.to_value(element, "a sequence element") for element in sequence.elements]
    if not values:
        zeros = np.zeros(0, to_numpy(sequence.dtype or "float32"))
        return RunTimeSequence(node.constant(zeros), node.constant(np.zeros((0, empty_rank), np.int64)))
    types = [node.tensor_type(value) for value in values]
    for type_ in types:
        if (type_.dtype, type_.rank) != (types[0].dtype, types[0].rank):
            raise node.error(
                "has a sequence of tensors that differ in dtype or rank", got=type_, expected=f"like {types[0]}"
            )
    flat = [node.reshape(value, (type_.num_elements or 0,)) for value, type_ in zip(values, types, strict=True)]
    shapes = [ShapeValue(node.shape_of(value), shape=(1, len(node.shape_of(value)))) for value in values]
    rows = [node.to_value(shape, "a shape") for shape in shapes]
    return RunTimeSequence(_joined(node, flat), _joined(node, rows))


def _joined(node: NodeContext, values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else node.emit("concat", *values, axis=0)


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
    for kind, text in ((StringTensor, "strings"), (MapSequence, "maps")):
        if len({isinstance(form, kind) for form in forms}) > 1:
            raise inner[0].error(f"has {subject} as {text} in one place, and as another kind of value in another")
    are_sequences = [isinstance(form, SequenceValue | RunTimeSequence) for form in forms]
    if not any(are_sequences):
        return list(forms)
    if not all(are_sequences):
        raise inner[0].error(f"has {subject} as a tensor in one place, and as a sequence in another")
    sequences = [form for form in forms if isinstance(form, SequenceValue | RunTimeSequence)]
    pairs = list(zip(inner, sequences, strict=True))
    ranks = (_rank_of(node, sequence) for node, sequence in pairs)
    rank = next((rank for rank in ranks if rank is not None), 0)
    return [as_run_time_sequence(node, sequence, empty_rank=rank) for node, sequence in pairs]


def _rank_of(node: NodeContext, sequence: SequenceValue | RunTimeSequence) -> int | None:
    """Return the rank of the tensors in a sequence, if known; a list without tensors has none."""
    if isinstance(sequence, SequenceValue):
        return len(node.shape_of(node.to_value(sequence.elements[0], "an element"))) if sequence.elements else None
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
    """Return tensors without elements, of the dtypes and ranks of an example."""
    if isinstance(example, StringTensor):
        strings = in_order(node, example)
        return StringTensor(_empty_like(node, strings.data), _empty_like(node, strings.lengths))
    if isinstance(example, RunTimeSequence):
        return RunTimeSequence(_empty_like(node, example.elements), node.constant(np.zeros((0, 0), np.int64)))
    return _empty_like(node, node.to_value(example, "an optional value"))


def _empty_like(node: NodeContext, example: Value) -> Value:
    type_ = node.tensor_type(example)
    return node.constant(np.zeros((0,) * len(node.shape_of(example)), to_numpy(type_.dtype)))


def to_parts(node: NodeContext, form: Imported, subject: str) -> list[Value]:
    """Return the tensors of a form.

    A tensor is one, strings or a sequence of tensors are two, a sequence of maps is the tensors of the keys and one of
    the values. An optional value is one more.
    """
    if isinstance(form, OptionalValue):
        flag = _as_flag(node, form.is_present)
        return [flag, *([] if form.value is None else to_parts(node, form.value, subject))]
    if isinstance(form, SequenceValue | RunTimeSequence):
        sequence = as_run_time_sequence(node, form)
        return [sequence.elements, sequence.shapes]
    if isinstance(form, StringTensor):
        strings = in_order(node, form)
        return [strings.data, strings.lengths]
    if isinstance(form, MapSequence):
        return [*to_parts(node, form.keys, subject), form.values]
    return [node.to_value(form, subject)]


def from_parts(form: Imported, parts: Iterator[Value]) -> Imported:
    """Return a form of the same kind as an example, of other tensors."""
    if isinstance(form, OptionalValue):
        flag = next(parts)
        return OptionalValue(flag, None if form.value is None else from_parts(form.value, parts))
    if isinstance(form, SequenceValue | RunTimeSequence):
        return RunTimeSequence(next(parts), next(parts))
    if isinstance(form, StringTensor):
        return StringTensor(next(parts), next(parts))
    if isinstance(form, MapSequence):
        keys = StringTensor(next(parts), next(parts)) if isinstance(form.keys, StringTensor) else next(parts)
        return MapSequence(keys, next(parts))
    return next(parts)


def form_name(form: Imported) -> str:
    """Return the name of a form, a key of :data:`byoc_core.runtime.value_forms.SUFFIXES`."""
    if isinstance(form, OptionalValue):
        return OPTIONAL + ("nothing" if form.value is None else form_name(form.value))
    if isinstance(form, SequenceValue | RunTimeSequence):
        return "sequence"
    if isinstance(form, StringTensor):
        return "strings"
    if isinstance(form, MapSequence):
        return "maps by string" if isinstance(form.keys, StringTensor) else "maps"
    return "tensor"


def part_names(form: Imported, name: str) -> list[str]:
    """Return a name for each tensor of a form: the name alone for a tensor."""
    return [name + suffix for suffix in SUFFIXES[form_name(form)]]
