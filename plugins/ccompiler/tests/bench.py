"""Functions compiled by direct calls of the backend's hooks, run beside the reference kernels; checks of results."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import byoc_ccompiler.backend as ccompiler
import numpy as np
import numpy.typing as npt
from byoc_ccompiler.options import CCompilerOptions
from byoc_core.backend.info import CompileContext
from byoc_core.dims import DimExpr, evaluate, solve_symbol
from byoc_core.ir import Binding, Constant, Function, FunctionBuilder, OpDef, TensorType, Value
from byoc_core.ops import default_ops
from byoc_core.runtime.csource import CSourceModule

NDArray = npt.NDArray[Any]
# For some processors gcc inlines more, and counts rounds of loops beyond all memory.
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-aggressive-loop-optimizations", "-Wno-unknown-warning-option")
PORTABLE = "portable"
"""The name standing in tables of processors for C without vectors and extensions."""
MEANING = 2 if os.environ.get("BYOC_EXAMPLES") == "thorough" else 0
"""The optimisation level of tests of results: gcc optimises for longer than all calls take.

``nox -s thorough`` compiles all these tests with optimisation; the kit compiles ONNX's cases of every op, all patterns
and all offered schedules with optimisation for this machine, and ``nox -s processors`` for other vectors.
"""


class Builder(FunctionBuilder):
    """A function builder for callers knowing the number of results of an op."""

    def emit(self, op: str | OpDef, *operands: Value | NDArray | np.generic, **options: Any) -> Any:
        """Add a binding; return its result, or a tuple if the op has several results."""
        return super().emit(op, *operands, **options)


class Bench:
    """A collection of functions, compiled all at once (a compiler run costs more than a kernel) and run.

    Args:
        options: options of the backend; :data:`PORTABLE` as ``march`` is the option ``portable``. The default of
            ``opt_level`` is :data:`MEANING`.
    """

    def __init__(self, **options: object) -> None:
        flags: tuple[str, ...] = WARNINGS
        if options.get("march") == PORTABLE:
            options, flags = {**options, "march": "native", "portable": True}, (*WARNINGS, "-pedantic-errors")
        self.options = CCompilerOptions.model_validate({"opt_level": MEANING, "extra_flags": flags, **options})
        self.functions: list[Function] = []
        self.constants: dict[str, NDArray] = {}
        self._module: CSourceModule | None = None

    def builder(self) -> Builder:
        return Builder(f"f{len(self.functions)}", ops=default_ops())

    def add(self, builder: FunctionBuilder, *results: Value) -> Function:
        function = builder.finish(*results)
        self.constants.update(builder.constants)
        self.functions.append(function)
        return function

    def op(self, name: str, types: Sequence[TensorType], **attrs: object) -> Function:
        """Add a function of a single op."""
        builder = self.builder()
        params = [builder.param(f"x{k}", type_) for k, type_ in enumerate(types)]
        return self.add(builder, *builder.bind(name, params, attrs).results)

    @property
    def module(self) -> CSourceModule:
        if self._module is None:
            context = CompileContext("ccompiler", self.options, self.constants)
            result = ccompiler.byoc_codegen(self.functions, context)
            assert not result.rejections, result.rejections
            assert isinstance(result.module, CSourceModule)
            self._module = result.module
        return self._module

    def calls(self, function: Function) -> list[str]:
        """Return the kernels called by the C of a function, in order; functions may share a kernel."""
        definition = re.search(rf"int32_t {function.name}_(?:all)?\(.*?\n}}", self.module.get_source(), re.DOTALL)
        body = definition[0].partition("{")[2] if definition else ""
        return re.findall(r"\b(f\d+_\d+\w*)\(", body)

    def run(self, function: Function, *inputs: NDArray) -> tuple[NDArray, ...]:
        """Return the results of the compiled function; outputs are filled with other values beforehand."""
        sizes = _sizes(function, inputs)
        outputs = []
        for type_ in function.result_types:
            assert isinstance(type_, TensorType)
            shape = [evaluate(dim, sizes) for dim in type_.shape or ()]
            outputs.append(np.full(shape, 1, np.dtype(type_.dtype)))
        self.module.get_function(function.name)(*inputs, *outputs)
        return tuple(outputs)

    def reference(self, function: Function, *inputs: NDArray, wide: bool = False) -> tuple[NDArray, ...]:
        """Return the results of the reference kernels; ``wide``: floats in float64, for an oracle."""
        return evaluate_with_kernels(function, inputs, self.constants, wide=wide)


def tensor_type(value: Value) -> TensorType:
    """Return the type of a tensor."""
    assert isinstance(value.type, TensorType)
    return value.type


def sizes_of(value: Value, symbols: Mapping[str, int] = MappingProxyType({})) -> tuple[int, ...]:
    """Return the shape of a tensor, with sizes for its symbols."""
    return tuple(evaluate(dim, symbols) for dim in tensor_type(value).shape or ())


def _sizes(function: Function, inputs: Sequence[NDArray]) -> dict[str, int]:
    """Return the sizes of the symbols."""
    sizes: dict[str, int] = {}
    for param, array in zip(function.params, inputs, strict=True):
        for dim, size in zip(tensor_type(param).shape or (), array.shape, strict=True):
            solved = solve_symbol(dim, size)
            if solved:
                sizes[solved[0]] = solved[1]
    return sizes


def evaluate_with_kernels(
    function: Function, inputs: Sequence[NDArray], constants: Mapping[str, NDArray], *, wide: bool = False
) -> tuple[NDArray, ...]:
    def widened(array: NDArray) -> NDArray:
        return array.astype(np.float64) if wide and array.dtype.kind == "f" else array

    values: dict[Value, NDArray] = dict(zip(function.params, map(widened, inputs), strict=True))

    def read(value: Value) -> NDArray:
        return widened(constants[value.digest]) if isinstance(value, Constant) else values[value]

    sizes = _sizes(function, inputs)

    def resolved(attr: object) -> Any:
        if isinstance(attr, tuple):
            return tuple(map(resolved, attr))
        return evaluate(attr, sizes) if isinstance(attr, DimExpr) else attr

    def visit(bindings: Sequence[Binding]) -> None:
        for binding in bindings:
            operands = [read(operand) for operand in binding.operands]
            if binding.op.name == "composite":
                (body,) = binding.regions
                values.update(zip(body.params, operands, strict=True))
                visit(body.bindings)
                values.update((outer, read(inner)) for outer, inner in zip(binding.results, body.results, strict=True))
                continue
            assert binding.op.kernel is not None
            attrs = {name: resolved(value) for name, value in binding.attrs.items()}
            result = binding.op.kernel(*operands, **attrs)
            values.update(zip(binding.results, result if isinstance(result, tuple) else (result,), strict=True))

    visit(function.bindings)
    return tuple(read(result) for result in function.results)


def assert_ulp(actual: NDArray, oracle: NDArray, ulp: float) -> None:
    """Check a float array against a float64 oracle, in units of the last place of the result's dtype."""
    with np.errstate(over="ignore", under="ignore"):
        expected = oracle.astype(actual.dtype)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    error = np.abs(actual[finite].astype(np.float64) - oracle[finite].astype(np.float64))
    # Beside the largest number there is no next one to measure the spacing by.
    spacing = np.spacing(np.minimum(np.abs(expected[finite]), np.finfo(actual.dtype).max / 2))
    assert np.all(error <= ulp * spacing), (error / spacing).max()


def assert_sum(actual: NDArray, oracle: NDArray, magnitude: NDArray, length: int) -> None:
    """Check sums of products against gamma_K * sum |a| |b| (Higham, ch. 3)."""
    unit = float(np.finfo(actual.dtype).eps) / 2
    terms = length + 2
    gamma = terms * unit / (1 - terms * unit)
    # The oracle itself is a float64 sum; where the result is float64 too, both have an error.
    slack = 2.0 if actual.dtype == np.float64 else 1.0 + 1e-6
    error = np.abs(actual.astype(np.float64) - oracle)
    assert np.all(error <= slack * gamma * magnitude + np.finfo(actual.dtype).tiny), (error / magnitude).max()
