"""Graph functions with constants in place of inputs that are the same in every call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from byoc_core.dtypes import dtype_name
from byoc_core.runtime.graph.document import GraphConstant, GraphFunction, GraphTensor
from byoc_core.runtime.module import ConstantInput

__all__ = ["with_constant_inputs"]


def with_constant_inputs(function: GraphFunction, constants: Mapping[int, ConstantInput]) -> GraphFunction:
    """Return a function of the same signature whose nodes read constants in place of some inputs.

    Args:
        function: a function without bodies.
        constants: the arrays of these inputs by number; their sizes are numbers.
    """
    first = len(function.inputs) + len(function.constants)
    numbers = {number: first + index for index, number in enumerate(sorted(constants))}
    items = [constants[number] for number in sorted(constants)]
    added = tuple(
        GraphConstant(item.digest, GraphTensor(dtype_name(item.array.dtype), tuple(item.array.shape))) for item in items
    )

    def moved(id_: int) -> int:
        return numbers.get(id_, id_ + len(added) if id_ >= first else id_)

    nodes = tuple(replace(node, inputs=tuple(map(moved, node.inputs))) for node in function.nodes)
    # An input that is a result too is copied from the argument.
    outputs = tuple((name, id_ if id_ in numbers else moved(id_)) for name, id_ in function.outputs)
    return replace(function, constants=(*function.constants, *added), nodes=nodes, outputs=outputs)
