"""Names of measured ops: a digest of the structure, and a family of similar ops."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

from byoc_core.ir import Binding, Constant, Function, TensorType, Value
from byoc_core.ir.structural_equality import attributes_text
from byoc_core.opset.families import family_of

__all__ = ["heaviest_op", "op_family", "op_key", "structure_of"]

_NEIGHBOURS = ("maker", "reader")
_JOINT = "|"
_INTEGERS = "quantisation"
"""The family of ops between floats and small integers."""
_CONSTANT = "constant"


def op_key(function: Function) -> str:
    """Return the key of a function of one op or composite, equal in every process.

    The key is a digest of the structure, and the names of the neighbours (see ``byoc_estimate``). Ops, attributes,
    types and the positions of constants count. Names of values and the elements of constants do not.
    """
    digest = hashlib.sha256()
    for token in _tokens(function):
        digest.update(token.encode())
        digest.update(b"\0")
    return _JOINT.join([digest.hexdigest()[:32], *(str(function.attrs.get(name, "")) for name in _NEIGHBOURS)])


def structure_of(key: str) -> str:
    """Return the part of a key without the neighbours."""
    return key.partition(_JOINT)[0]


def _tokens(function: Function) -> Iterator[str]:
    numbers: dict[int, int] = {}
    for binding in function.bindings:
        yield from _op_tokens(binding, numbers)


def _op_tokens(binding: Binding, numbers: dict[int, int]) -> Iterator[str]:
    def cite(value: Value) -> str:
        number = _CONSTANT if isinstance(value, Constant) else numbers.setdefault(id(value), len(numbers))
        return f"{number} {value.type}"

    yield f"{binding.op.name} {len(binding.operands)} {len(binding.regions)} {len(binding.results)}"
    yield attributes_text(binding.attrs)
    yield from map(cite, binding.operands)
    for region in binding.regions:
        yield f"region {len(region.params)} {len(region.bindings)} {len(region.results)}"
        yield from map(cite, region.params)
        for inner in region.bindings:
            yield from _op_tokens(inner, numbers)
        yield from map(cite, region.results)
    yield from map(cite, binding.results)


def heaviest_op(function: Function) -> Binding:
    """Return the op of a function with most work, the first among equals."""
    ops = [binding for binding in function.walk() if not binding.regions]
    return max(ops, key=lambda op: (*_work(op), -ops.index(op)))


def _work(binding: Binding) -> tuple[int, int]:
    context = binding.context()
    flops, nbytes = binding.op.flops(context), binding.op.nbytes(context)
    return flops if isinstance(flops, int) else 0, nbytes if isinstance(nbytes, int) else 0


def op_family(function: Function) -> str:
    """Return the family of a function of one op or composite: functions with kernels of one kind.

    The op with most work decides. Functions of small integers, or of a value made from small integers, have families
    of their own. So have ops in groups, and ops with a window of one element. An op of another package is a family by
    itself.
    """
    binding = heaviest_op(function)
    words = [family_of(binding.op.name).replace("_", " ") or binding.op.name]
    types = [value.type for value in binding.operands if isinstance(value.type, TensorType)]
    groups = binding.attrs.get("groups")
    if isinstance(groups, int):
        words = [f"{_grouping(groups, types)}{words[0]}"]
    operands = [value.type for op in function.walk() for value in op.operands]
    is_small = any(isinstance(type_, TensorType) and type_.dtype in ("int8", "uint8") for type_ in operands)
    if is_small or family_of(str(function.attrs.get("maker", ""))) == _INTEGERS:
        words.append("of int8")
    return " ".join(words)


def _grouping(groups: int, types: list[TensorType]) -> str:
    shape = types[1].shape if len(types) > 1 else None
    if groups > 1:
        return "depthwise " if shape is not None and len(shape) > 1 and shape[1] == 1 else "grouped "
    window = [size for size in (shape or ())[2:] if isinstance(size, int)]
    return "pointwise " if window and math.prod(window) == 1 else ""
