"""View ops: which ops only look at their operands' memory in another way, and whether what they give is one piece."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from byoc_core.dims import Dim, is_nonnegative, product
from byoc_core.ir import Binding, TensorType, Trait, Value

__all__ = ["CONCAT", "SPLIT", "is_in_one_piece", "is_reshaping", "is_view"]

CONCAT, SPLIT = "concat", "split"
_PERMUTE, _SLICE = "permute_dims", "strided_slice"


def is_view(binding: Binding) -> bool:
    """Tells whether each result is a view of the operand's memory, or each operand one of the result's.

    Their sizes provably agree, so that nothing is left to be checked when the program runs: nobody would check it.
    """
    if not all(_has_shape(value) for value in (*binding.operands, *binding.results)):
        return False
    if is_reshaping(binding):
        return product(_shape(binding.operands[0])) == product(_shape(binding.results[0]))
    if binding.op.name == SPLIT:
        axis = _axis(binding)
        parts = [_shape(part)[axis] for part in binding.results]
        return sum(parts, start=0) == _shape(binding.operands[0])[axis] and _have_certain_places(parts)
    if binding.op.name == CONCAT:
        axis = _axis(binding)
        shapes = [_shape(operand) for operand in binding.operands]
        are_alike = len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) == 1
        return are_alike and _have_certain_places([shape[axis] for shape in shapes])
    return binding.op.name == _PERMUTE or (binding.op.name == _SLICE and _is_static_slice(binding))


def is_reshaping(binding: Binding) -> bool:
    """Tells whether an op keeps the elements and their row-major order."""
    return binding.op.has_trait(Trait.RESHAPING)


def is_in_one_piece(binding: Binding) -> bool:
    """Tells of a view op whether what is a view is C-contiguous, given that what it is a view of is."""
    match binding.op.name:
        case "concat":
            return product(_shape(binding.results[0])[: _axis(binding)]) == 1
        case "split":
            return product(_shape(binding.operands[0])[: _axis(binding)]) == 1
        case "permute_dims":
            return _keeps_order(binding)
        case "strided_slice":
            return _slices_one_piece(binding)
    return True


def _have_certain_places(sizes: Sequence[Dim]) -> bool:
    """Tells whether parts one behind the other provably lie inside the whole, which lowering has to prove too."""
    ends = (*sizes, *accumulate(sizes), *accumulate(reversed(sizes)))
    return all(map(is_nonnegative, ends))


def _keeps_order(binding: Binding) -> bool:
    """Tells whether a permutation moves axes of size 1 only."""
    shape = _shape(binding.operands[0])
    axes = binding.attrs["axes"]
    order = [int(str(a)) % len(shape) for a in axes] if isinstance(axes, tuple) else [*range(len(shape))][::-1]
    long = [axis for axis in order if shape[axis] != 1]
    return long == sorted(long)


def _is_static_slice(binding: Binding) -> bool:
    """Tells whether a slice goes forwards, and its bounds and the axes that it cuts are numbers."""
    shape = _shape(binding.operands[0])
    bounds = (*_numbers(binding, "begin"), *_numbers(binding, "end"), *(shape[axis] for axis in _sliced_axes(binding)))
    return all(isinstance(bound, int) for bound in bounds) and all(step > 0 for step in _steps(binding))


def _slices_one_piece(binding: Binding) -> bool:
    source, result = _shape(binding.operands[0]), _shape(binding.results[0])
    steps = dict(zip(_sliced_axes(binding), _steps(binding), strict=True))
    cut = [axis for axis in sorted(steps) if result[axis] != source[axis]]
    if not cut:
        return True
    return product(result[: cut[-1]]) == 1 and (steps[cut[-1]] == 1 or result[cut[-1]] == 1)


def _sliced_axes(binding: Binding) -> list[int]:
    rank = len(_shape(binding.operands[0]))
    return [int(str(axis)) % rank for axis in _numbers(binding, "axes")]


def _steps(binding: Binding) -> list[int]:
    return [int(str(step)) for step in _numbers(binding, "strides")]


def _numbers(binding: Binding, name: str) -> tuple[object, ...]:
    found = binding.attrs[name]
    assert isinstance(found, tuple)  # the op's declaration says so
    return found


def _axis(binding: Binding) -> int:
    return int(str(binding.attrs["axis"])) % len(_shape(binding.operands[0]))


def _has_shape(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.shape is not None


def _shape(value: Value) -> tuple[Dim, ...]:
    assert isinstance(value.type, TensorType)
    assert value.type.shape is not None
    return value.type.shape
