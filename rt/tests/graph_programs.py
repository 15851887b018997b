"""Programs calling the functions of a graph document written by hand, one external call each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.artifact import Executable
from byoc_core.digest import digest_of
from byoc_core.runtime.graph import GraphModule
from byoc_core.runtime.graph.document import GraphConstant, GraphDocument, GraphFunction, GraphTensor
from byoc_core.vm import Call, CallKind, Program, Ret

from rt.tests.written_programs import function_of

__all__ = ["constant_of", "executable_of_functions"]

NDArray = npt.NDArray[Any]


def constant_of(array: NDArray) -> GraphConstant:
    """Return the citation of an array."""
    return GraphConstant(digest_of(array), GraphTensor(array.dtype.name, array.shape))


def executable_of_functions(functions: Sequence[GraphFunction], arrays: Sequence[NDArray] = ()) -> Executable:
    """Return the executable with a function of the same inputs and outputs for each function filling its outputs."""
    constants = {digest_of(array): np.ascontiguousarray(array) for array in arrays}
    module = GraphModule(GraphDocument({function.name: function for function in functions}), constants)
    callers = []
    for index, function in enumerate(functions):
        inputs, outputs = function.signature.inputs, function.signature.outputs
        assert not function.signature.new_symbols
        numbers = range(len(inputs) + len(outputs))
        call = Call(CallKind.EXTERN, index, tuple(numbers[: len(inputs)]), tuple(numbers[len(inputs) :]))
        returned = Ret(tuple(numbers[len(inputs) :]))
        callers.append(function_of(inputs, outputs, [call, returned], name=function.name))
    program = Program(tuple(callers), tuple(function.name for function in functions), ())
    return Executable(program, [module], constants, is_own=True)
