"""Mutants of documents: attributes and declared shapes changed at random, alone or together, then built and called.

Documents from files are checked against the rules of ops while decoded. The documents here are not decoded.

Run as a program, so an endless call or a fault of memory ends a child process. The program names each mutant in a file
before loading the mutant.

    python -m plugins.dnnl.tests.mutants SEED COUNT FILE
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import byoc_dnnl.backend as dnnl
import numpy as np
import numpy.typing as npt
from byoc_core.dims import evaluate
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ByocError
from byoc_core.ir import TensorType
from byoc_core.ops import default_ops
from byoc_core.ops.cases import OpCase, canonical_cases, new_function
from byoc_core.ops.cases import dtypes_of as dtypes_taken
from byoc_core.runtime.graph.document import GraphDocument, GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.module import TensorSpec
from byoc_dnnl.calls import shape_of
from byoc_dnnl.engine import DnnlModule
from byoc_dnnl.lowerings import LOWERINGS
from byoc_dnnl.lowerings.table import dtypes_of

__all__ = ["cases_with_lowerings", "document_of", "run_mutants"]

NDArray = npt.NDArray[Any]
MAX_ELEMENTS = 1 << 20
"""The limit on elements of all arguments of a called mutant together."""

_INTEGERS = (
    *(-(2**63), -(2**31), -64, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 64, 4096, 2**16, 2**20),
    *(2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, 2**64 + 1),
)
_NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e30, 1e300, -1e300, 10**400)


def document_of(case: OpCase, dtype: str = "float32", *, is_dynamic: bool = False) -> GraphFunction:
    """Return a function of a single call, taken from a case; ``is_dynamic``: the first size is the symbol ``n``."""
    types = case.symbolic_types() if is_dynamic else case.types(dtype)
    _, binding = new_function(_op(case.op), types, case.attrs)
    return dnnl._graph_of(binding)


def cases_with_lowerings() -> list[tuple[OpCase, str]]:
    """Return the cases of all ops with lowerings, with the dtypes of oneDNN accepted by each op."""
    return [
        (case, dtype)
        for op in LOWERINGS
        for case in canonical_cases(default_ops())[op]
        for dtype in {case.dtype, *dtypes_of(op)}
        if dtype in ("float32", "int8", "uint8") and dtype in dtypes_taken(case, _op(op))
    ]


def _op(name: str) -> Any:
    return default_ops()[name]


class _Mutator:
    """A mutator of documents in sequence."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._cases = sorted(cases_with_lowerings(), key=lambda pair: (pair[0].op, str(pair[0]), pair[1]))

    def next(self) -> tuple[GraphFunction, Mapping[str, int]]:
        """Return the next mutant, with the sizes of the symbols for the call."""
        case, dtype = self.random.choice(self._cases)
        is_dynamic = self.random.random() < 0.3
        try:
            function = document_of(case, dtype, is_dynamic=is_dynamic)
        except ByocError:
            function = document_of(case, dtype)  # the op takes no such symbol
        for _ in range(self.random.choice((1, 1, 2, 3))):
            function = self._changed(function)
        is_consistent = self.random.random() < 0.6
        first = [size for operand in case.operands[:1] for size in operand.shape[:1]]
        return (self._consistent(function) if is_consistent else function), {"n": first[0] if first else 1}

    def _changed(self, function: GraphFunction) -> GraphFunction:
        (node,) = function.nodes
        if node.attrs and self.random.random() < 0.7:
            name = self.random.choice(sorted(node.attrs))
            attrs = {**node.attrs, name: self._other(node.attrs[name])}
            return self._with_node(function, replace(node, attrs=MappingProxyType(attrs)))
        if self.random.random() < 0.5 and function.inputs:
            index = self.random.randrange(len(function.inputs))
            spec = function.inputs[index]
            changed = TensorSpec(spec.name, spec.dtype, self._other_shape(spec.shape))
            inputs = (*function.inputs[:index], changed, *function.inputs[index + 1 :])
            return GraphFunction(function.name, inputs, function.constants, function.nodes, function.outputs)
        index = self.random.randrange(len(node.outputs))
        outputs = list(node.outputs)
        outputs[index] = GraphTensor(outputs[index].dtype, self._other_shape(outputs[index].shape))
        return self._with_node(function, replace(node, outputs=tuple(outputs)))

    def _with_node(self, function: GraphFunction, node: GraphNode) -> GraphFunction:
        return GraphFunction(function.name, function.inputs, function.constants, (node,), function.outputs)

    def _other(self, value: Any) -> Any:
        if isinstance(value, tuple) and value:
            index = self.random.randrange(len(value))
            return (*value[:index], self._other(value[index]), *value[index + 1 :])
        if isinstance(value, bool):
            return not value
        if isinstance(value, float):
            return self.random.choice(_NUMBERS)
        if isinstance(value, int):
            return value + self.random.choice((-1, 1)) if self.random.random() < 0.3 else self.random.choice(_INTEGERS)
        return value

    def _other_shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        if not shape or self.random.random() < 0.1:
            return (*shape, self.random.choice((1, 2, 5)))
        return tuple(self._other(tuple(shape)))

    def _consistent(self, function: GraphFunction) -> GraphFunction:
        """Return the function with results from the rule of the op, if the rule gives any."""
        (node,) = function.nodes
        values = function.values
        try:
            types = [TensorType(values[id_].shape, values[id_].dtype) for id_ in node.inputs]
            found, _ = new_function(_op(node.op), types, node.attrs)
        except (ByocError, ArithmeticError, LookupError, TypeError, ValueError):
            return function  # the rule of no op takes such numbers, or fails on them
        outputs = tuple(dnnl._tensor(result) for result in found.results)
        return self._with_node(function, replace(node, outputs=outputs))


def _run(function: GraphFunction, sizes: Mapping[str, int]) -> str:
    """Return the outcome of a mutant: refused while loading or calling, or run."""
    document = GraphDocument(MappingProxyType({function.name: function}))
    generator = np.random.default_rng(0)
    constants = {
        constant.digest: np.ones(shape_of(constant.tensor), to_numpy(constant.tensor.dtype))
        for constant in function.constants
    }
    try:
        module = DnnlModule(document, constants)
        specs = (*function.signature.inputs, *function.signature.outputs)
        shapes = [tuple(evaluate(dim, sizes) for dim in spec.shape) for spec in specs]
    except ByocError:
        return "not loaded"
    if any(size < 0 for shape in shapes for size in shape):
        return "of no size"
    if sum(math.prod(max(1, size) for size in shape) for shape in shapes) > MAX_ELEMENTS:
        return "too large to call"
    arrays = [
        generator.integers(0, 3, shape).astype(to_numpy(spec.dtype)) for spec, shape in zip(specs, shapes, strict=True)
    ]
    try:
        module.get_function(function.name)(*arrays)
    except ByocError:
        return "call refused"
    return "ran"


def run_mutants(seed: int, count: int, path: Path) -> dict[str, int]:
    """Return the number of mutants for each outcome.

    Args:
        seed: of the mutants.
        count: how many.
        path: the file naming the mutant under way.
    """
    mutator, found = _Mutator(seed), dict[str, int]()
    for number in range(count):
        function, sizes = mutator.next()
        path.write_text(f"{number}: {function.inputs} {function.nodes}")
        with np.errstate(all="ignore"):
            end = _run(function, sizes)
        found[end] = found.get(end, 0) + 1
    return found


if __name__ == "__main__":
    print(json.dumps(run_mutants(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
