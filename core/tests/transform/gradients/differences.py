"""Gradients compared with central differences of the interpreted function, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dtypes import is_float
from byoc_core.ir import FunctionBuilder, IRModule, TensorType, Value, verify
from byoc_core.transform import evaluate_function
from byoc_core.transform.gradients import differentiate

__all__ = [
    "STEP",
    "Array",
    "check_gradients",
    "check_slopes",
    "float_params",
    "gradient_module",
    "separated",
    "weighted_sum",
]

Array = npt.NDArray[Any]

STEP = 2.0**-13
"""The step of the nearer difference."""

_ROUNDINGS = 2.0**8 * float(np.finfo(np.float64).eps)
"""The error of a computed sum, relative to the sum of magnitudes: kernels add up to some hundred terms."""
_NUM_DIRECTIONS = 3


def separated(
    generator: np.random.Generator,
    shape: Sequence[int],
    low: float = -1.9371,
    high: float = 2.1113,
    *,
    offset: float = 0.25,
) -> Array:
    """Return evenly spaced numbers in random order: no two numbers are equal, and none is a common threshold.

    Args:
        generator: for the order.
        shape: the shape.
        low: the lower end.
        high: the upper end.
        offset: the first number's distance from the lower end, in distances between numbers.
    """
    count = int(np.prod(shape))
    numbers = low + (generator.permutation(count) + offset) * ((high - low) / max(count, 1))
    return np.asarray(numbers.reshape(shape))


def float_params(module: IRModule) -> list[int]:
    """Return the positions of the parameters of ``main`` holding floats."""
    return [index for index, param in enumerate(module["main"].params) if _is_of_floats(param)]


def _is_of_floats(value: Value) -> bool:
    return isinstance(value.type, TensorType) and is_float(value.type.dtype)


def weighted_sum(module: IRModule) -> IRModule:
    """Return a module with a scalar result: the elements of all floats of ``main``, times weights in more parameters.

    The gradient of the sum with equal weights would be zero for a softmax, and would not show a wrong order.
    """
    main = module["main"]
    builder = FunctionBuilder("main", ops=module.ops, constants=module.constants)
    params = [builder.param(param.name, param.type) for param in main.params]
    results = builder.inline(main, params)
    total: Value | None = None
    for index, result in enumerate(filter(_is_of_floats, results)):
        weights = builder.param(f"weights{index}", result.type)
        product = builder.bind("multiply", (result, weights), {}).result
        term = builder.bind("sum", (product,), {}).result
        total = term if total is None else builder.bind("add", (total, term), {}).result
    assert total is not None
    return IRModule({"main": builder.finish(total)}, module.constants, ops=module.ops)


def gradient_module(module: IRModule, variables: Sequence[int]) -> IRModule:
    """Return a verified module with the gradients of the only result of ``main`` by some parameters."""
    main = module["main"]
    gradients = differentiate(
        main, [main.params[index] for index in variables], ops=module.ops, constants=module.constants
    )
    assert [param.type for param in gradients.params] == [param.type for param in main.params]
    assert [result.type for result in gradients.results] == [main.params[index].type for index in variables]
    return verify(IRModule({"main": gradients}, module.constants, ops=module.ops))


def check_gradients(
    module: IRModule, inputs: Sequence[Array], generator: np.random.Generator, variables: Sequence[int] | None = None
) -> IRModule:
    """Check the gradients of all floats of ``main``, with random weights, and return the module of the gradients.

    Args:
        module: the module; floats are float64.
        inputs: an array for each parameter.
        generator: for weights and directions.
        variables: the positions of the parameters; by default all parameters holding floats.
    """
    summed = weighted_sum(verify(module))
    results = evaluate_function(module, "main", inputs)
    weights = [generator.uniform(0.5, 1.5, result.shape) for result in results if result.dtype == np.float64]
    size = sum(float(np.sum(np.abs(r))) for r in results if r.dtype == np.float64)
    gradients = gradient_module(summed, float_params(module) if variables is None else variables)
    check_slopes(summed, gradients, [*inputs, *weights], size, generator, variables or float_params(module))
    return gradients


def check_slopes(
    module: IRModule,
    gradients: IRModule,
    inputs: Sequence[Array],
    size: float,
    generator: np.random.Generator,
    variables: Sequence[int],
) -> None:
    """Check gradients of a scalar against slopes along random directions.

    The slope is extrapolated from differences with two steps (Richardson). Its error is below the difference of both
    differences, and the rounding error of the sums divided by the step.

    Args:
        module: the function; its result is a scalar.
        gradients: the gradients by the variables.
        inputs: an array for each parameter.
        size: the sum of the magnitudes of the summed numbers.
        generator: for directions.
        variables: the positions of the parameters.
    """
    found = evaluate_function(gradients, "main", inputs)
    assert [array.shape for array in found] == [inputs[index].shape for index in variables]
    assert all(array.dtype == np.float64 and np.isfinite(array).all() for array in found)
    for _ in range(_NUM_DIRECTIONS):
        directions = [generator.choice((-1.0, 1.0), inputs[index].shape) for index in variables]

        def value_at(step: float, directions: Sequence[Array] = directions) -> float:
            moved = list(inputs)
            for index, direction in zip(variables, directions, strict=True):
                moved[index] = moved[index] + step * direction
            (total,) = evaluate_function(module, "main", moved)
            return float(total)

        near, far = ((value_at(step) - value_at(-step)) / (2 * step) for step in (STEP, 2 * STEP))
        slope = (4 * near - far) / 3
        pairs = [gradient * direction for gradient, direction in zip(found, directions, strict=True)]
        noise = _ROUNDINGS * (size / STEP + sum(float(np.sum(np.abs(pair))) for pair in pairs))
        found_slope = sum(float(np.sum(pair)) for pair in pairs)
        assert found_slope == pytest.approx(slope, rel=0, abs=abs(far - near) + noise)
