"""The reference interpreter: runs IR with the ops' reference kernels, op by op.

The interpreter defines the meaning of a program; the VM and every backend are compared with its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dims import DimExpr, evaluate, solve_symbol, substitute, symbols_of
from byoc_core.dtypes import is_float, to_numpy
from byoc_core.errors import IRTypeError
from byoc_core.ir import CALL, COMPOSITE, IF, LOOP, Binding, Constant, Function, IRModule, TensorType, Value, Var
from byoc_core.ir.sizes import learnt_symbols
from byoc_core.opset.opdef import Trait
from byoc_core.opset.running import run_kernel

__all__ = ["OnCall", "OnResults", "evaluate_binding", "evaluate_function", "resolve_dims"]

Array = npt.NDArray[Any]
OnCall = Callable[[Function, Sequence[Array]], Sequence[Array] | None]
"""Called with each called function and its operands; returns the results, or ``None`` to interpret the function."""

OnResults = Callable[[Binding, Sequence[Array], Sequence[Array], Mapping[str, int]], Sequence[Array]]
"""Called with an op, the operands, the results and the sizes of symbols; returns the results to continue with."""


def evaluate_function(
    module: IRModule,
    name: str,
    inputs: Sequence[npt.ArrayLike],
    *,
    exact: bool = False,
    on_call: OnCall | None = None,
    on_results: OnResults | None = None,
) -> tuple[Array, ...]:
    """Run a function of a module.

    Args:
        module: the module with the function and its callees.
        name: the name of the function.
        inputs: one array per parameter.
        exact: compute in float64 in place of every narrower float of the program: the oracle for comparing results.
        on_call: asked for the results of each called function; ``None`` as its answer has the function interpreted.
        on_results: called after each reference kernel with the op, the operands, the results and the sizes of symbols;
            returns the results to continue with.

    Returns:
        One array per result.

    Raises:
        ExecutionError: the function calls something without a reference kernel.
    """
    function = module[name]
    arrays = [np.asarray(array) for array in inputs]
    return _Interpreter(module, exact, on_call, on_results).run(
        function, [_widen(a) if exact else a for a in arrays], {}
    )


def evaluate_binding(binding: Binding, inputs: Sequence[Array], sizes: Mapping[str, int]) -> tuple[Array, ...]:
    """Run the reference kernel of an op.

    Raises:
        ExecutionError: the op has no reference kernel, or the kernel of a plugin's op failed.
    """
    return run_kernel(binding.op, inputs, resolve_dims(binding.attrs, sizes))


def resolve_dims(attrs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return attributes with every symbolic size evaluated."""
    return {key: _resolve(value, sizes) for key, value in attrs.items()}


def _resolve(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, DimExpr):
        return evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple(_resolve(item, sizes) for item in value)
    return value


def _learn_sizes(values: Sequence[Var], arrays: Sequence[Array], sizes: dict[str, int]) -> None:
    """Add the sizes of symbols determined by the shapes of arrays, until no further symbol follows."""
    pending = [
        (dim, size)
        for value, array in zip(values, arrays, strict=True)
        if isinstance(value.type, TensorType) and value.type.shape is not None
        for dim, size in zip(value.type.shape, array.shape, strict=True)
        if isinstance(dim, DimExpr)
    ]
    while pending:
        rest = [(dim, size) for dim, size in pending if not _learn_size(dim, size, sizes)]
        if len(rest) == len(pending):
            break
        pending = rest


def _learn_size(dim: DimExpr, size: int, sizes: dict[str, int]) -> bool:
    try:
        solved = solve_symbol(substitute(dim, sizes), size)
    except IRTypeError:  # sizes not broadcast; reported by the op using the sizes
        return True
    if solved is not None:
        sizes.update((solved,))
    return symbols_of(dim) <= sizes.keys()


def _widen(array: Array) -> Array:
    return array.astype(np.float64, copy=False) if is_float(array.dtype.name) else array


def _narrow(array: Array, value: Value) -> Array:
    return array.astype(to_numpy(value.type.dtype)) if isinstance(value.type, TensorType) else array


class _Interpreter:
    def __init__(self, module: IRModule, exact: bool, on_call: OnCall | None, on_results: OnResults | None) -> None:
        self._module = module
        self._exact = exact
        self._on_call = on_call
        self._on_results = on_results
        self._dead: dict[int, list[set[int]]] = {}

    def run(self, function: Function, inputs: Sequence[Array], outer_sizes: Mapping[str, int]) -> tuple[Array, ...]:
        sizes = dict(outer_sizes)
        values: dict[int, Array] = {id(param): array for param, array in zip(function.params, inputs, strict=True)}
        _learn_sizes(function.params, inputs, sizes)
        for binding, dead in zip(function.bindings, self._dead_values(function), strict=True):
            operands = [self._value(operand, values) for operand in binding.operands]
            outputs = self._binding(binding, operands, sizes)
            values.update((id(result), output) for result, output in zip(binding.results, outputs, strict=True))
            if learnt_symbols(binding, self._module.functions):
                _learn_sizes(binding.results, outputs, sizes)
            for key in dead:
                values.pop(key, None)
        return tuple(self._value(result, values) for result in function.results)

    def _dead_values(self, function: Function) -> list[set[int]]:
        """Return for each binding the values not read later: the values of a network need not all be held at once."""
        if id(function) not in self._dead:
            read = {id(result) for result in function.results}
            dead = []
            for binding in reversed(function.bindings):
                last = {id(value) for value in (*binding.operands, *binding.results)} - read
                dead.append(last)
                read |= last
            self._dead[id(function)] = dead[::-1]
        return self._dead[id(function)]

    def _value(self, value: Value, values: Mapping[int, Array]) -> Array:
        if isinstance(value, Constant):
            array: Array = self._module.constants[value.digest]
            return _widen(array) if self._exact else array
        return values[id(value)]

    def _binding(self, binding: Binding, operands: list[Array], sizes: Mapping[str, int]) -> tuple[Array, ...]:
        if binding.op is CALL:
            callee = self._module[str(binding.attrs["callee"])]
            override = self._on_call(callee, operands) if self._on_call is not None else None
            return self.run(callee, operands, {}) if override is None else tuple(override)
        if binding.op is COMPOSITE:
            return self.run(binding.regions[0], operands, sizes)
        if binding.op is IF:
            return self.run(binding.regions[0 if bool(operands[0]) else 1], operands[1:], sizes)
        if binding.op is LOOP:
            return self._loop(binding.regions[0], operands, sizes)
        if self._exact and Trait.READS_BITS in binding.op.traits:
            operands = [_narrow(array, value) for array, value in zip(operands, binding.operands, strict=True)]
        outputs = evaluate_binding(binding, operands, sizes)
        if self._exact:
            outputs = tuple(map(_widen, outputs))
        return outputs if self._on_results is None else tuple(self._on_results(binding, operands, outputs, sizes))

    def _loop(self, body: Function, operands: list[Array], sizes: Mapping[str, int]) -> tuple[Array, ...]:
        limit, condition = int(operands[0]), bool(operands[1])
        carried = tuple(operands[2:])
        iteration = 0
        while condition and iteration < limit:
            next_condition, *rest = self.run(body, [np.array(iteration, np.int64), *carried], sizes)
            carried, condition, iteration = tuple(rest), bool(next_condition), iteration + 1
        return carried
