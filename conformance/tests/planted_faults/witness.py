"""Functions and inputs showing a fault: a test of the kit has to draw these to catch the fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from byoc_conformance.judging import judge
from byoc_conformance.subject import Subject, SubjectSpec, call_function
from byoc_core.dims import Dim
from byoc_core.errors import ByocError
from byoc_core.ir import Constant, FunctionBuilder, IRModule, TensorType, Value, Var
from byoc_core.ops import default_ops
from byoc_core.transform import evaluate_function

__all__ = ["Draft", "Draw", "NDArray", "Witness", "find_mistake"]

NDArray = npt.NDArray[Any]


class Draft:
    """A builder of the function ``main``, and a source of arrays.

    Attributes:
        generator: of all random numbers.
    """

    def __init__(self) -> None:
        self.builder = FunctionBuilder("main", ops=default_ops())
        self.generator = np.random.default_rng(0)
        self._num_params = 0

    def param(self, *shape: Dim, dtype: str = "float32") -> Var:
        """Return a new parameter."""
        self._num_params += 1
        return self.builder.param(f"x{self._num_params}", TensorType(shape, dtype))

    def const(self, array: NDArray | np.generic) -> Constant:
        """Return a constant."""
        return self.builder.const(np.asarray(array))

    def op(self, name: str, *operands: Value, **attrs: object) -> Value:
        """Return the first result of an op."""
        return self.ops(name, *operands, **attrs)[0]

    def ops(self, name: str, *operands: Value, **attrs: object) -> tuple[Value, ...]:
        """Return all results of an op."""
        return tuple(self.builder.bind(name, operands, attrs).results)

    def normal(self, *shape: int) -> NDArray:
        """Return normal numbers of float32."""
        return self.generator.standard_normal(shape).astype(np.float32)

    def positive(self, *shape: int) -> NDArray:
        """Return numbers of float32 from 0.1 on."""
        return np.abs(self.normal(*shape)) + np.float32(0.1)

    def integers(self, low: int, high: int, shape: Sequence[int], dtype: str) -> NDArray:
        """Return integers from ``low`` to ``high`` less 1."""
        return self.generator.integers(low, high, tuple(shape)).astype(dtype)

    def dequantised(self, x: Value, scale: NDArray | float, zero_point: NDArray | int, dtype: str) -> Value:
        """Return dequantised integers as floats; several parameters lie along the first axis."""
        parameters = (self.const(np.asarray(scale, np.float32)), self.const(np.asarray(zero_point, dtype)))
        return self.op("dequantize", x, *parameters, axis=0)


class Witness(NamedTuple):
    """The evidence of a fault.

    Attributes:
        results: of the function.
        calls: the inputs of each call, in order.
        is_exact: whether the results have to equal the reference kernels although the judge permits neighbours.
    """

    results: Sequence[Value]
    calls: Sequence[Sequence[NDArray]]
    is_exact: bool = False


Draw = Callable[[Draft], Witness]
"""Builds a function, and returns the arguments for its calls."""


def find_mistake(plugin: str, draw: Draw) -> str:
    """Return the wrong result of a backend, or the change of an input; empty if all calls are right."""
    draft = Draft()
    witness = draw(draft)
    module = IRModule({"main": draft.builder.finish(*witness.results)}, draft.builder.constants)
    subject = Subject(SubjectSpec(plugin))
    attempt = subject.attempt(module)
    for inputs in witness.calls:
        arrays = [np.array(array) for array in inputs]
        try:
            found = call_function(attempt.vm, "main", arrays)
        except ByocError as error:
            return str(error)
        if any(array.tobytes() != before.tobytes() for array, before in zip(arrays, inputs, strict=True)):
            return "an input was changed"
        verdict = judge(attempt.module, "main", inputs, found, subject.unit_roundoff)
        if not verdict.is_right:
            return verdict.text
        if witness.is_exact:
            expected = evaluate_function(attempt.module, "main", inputs)
            if not all(map(np.array_equal, found, expected)):
                return "the results differ from the reference kernels"
    return ""
