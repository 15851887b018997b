"""Random numbers: numbers determined by a seed, and the seed of a run.

An op with random numbers is pure: equal seeds give equal numbers. Only ``random.seed``, which draws a seed, gives other
results in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from byoc_core.dims import Dim
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import OpCase, example, integers
from byoc_core.opset.contexts import TypeContext, no_flops
from byoc_core.opset.opdef import OpDef, OperandSpec, Trait
from byoc_core.opset.rounding import NORM, Rounding, Rule
from byoc_core.opset.type_rules import INTEGER_KINDS, flops_per_element, require_kind, require_sizes
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]

_WORDS = 4
"""The words of 32 bits of a drawn seed: as many as in a seed of numpy's own generators."""
_DTYPES = ("float16", "bfloat16", "float32", "float64")


def _seed() -> NDArray:
    """Return the words of a new seed, drawn from the operating system."""
    return np.random.SeedSequence().generate_state(_WORDS).astype(np.int64)


def _state(op: str, seed: NDArray) -> np.random.RandomState:
    """Return numpy's legacy generator in the state after seeding.

    Raises:
        ExecutionError: a word of the seed is out of range.
    """
    words = seed.astype(np.int64)
    if words.size == 0 or words.min() < 0 or words.max() >= 1 << 32:
        raise ExecutionError(
            f"op `{op}`", "has an invalid seed", got=words.tolist(), expected="words from 0 to 2**32-1"
        )
    return np.random.RandomState(words)


def _uniform(seed: NDArray, *, shape: Sequence[int], low: float, high: float, dtype: str) -> NDArray:
    """Return numbers of a uniform distribution, computed in float64 and rounded once.

    Numbers rounded to ``high`` become the number before, for ``high`` is no result.
    """
    wide = _state("random.uniform", seed).random_sample(tuple(shape)) * (high - low) + low
    numbers = np.asarray(wide).astype(to_numpy(dtype))
    end = np.asarray(high).astype(numbers.dtype)
    if low == high:
        return numbers
    return np.where(numbers == end, np.nextafter(end, np.asarray(low).astype(numbers.dtype)), numbers)


def _normal(seed: NDArray, *, shape: Sequence[int], mean: float, scale: float, dtype: str) -> NDArray:
    """Return numbers of a normal distribution, computed in float64 and rounded once."""
    wide = _state("random.normal", seed).standard_normal(tuple(shape)) * scale + mean
    return np.asarray(wide).astype(to_numpy(dtype))


def _infer_seed(context: TypeContext) -> tuple[Type, ...]:
    return (TensorType((_WORDS,), "int64"),)


def _infer_numbers(context: TypeContext) -> tuple[Type, ...]:
    require_kind(context, 0, INTEGER_KINDS)
    rank = len(context.shape(0))
    if rank > 1:
        raise context.error("is no seed", operand=0, got=f"rank {rank}", expected="an integer, or a vector of words")
    shape: tuple[Dim, ...] = context.attrs["shape"]
    require_sizes(context, shape)
    return (TensorType(shape, context.attrs["dtype"]),)


def _all_open(operands: Sequence[NDArray], attrs: Mapping[str, Any]) -> NDArray:
    """Return that no element is determined."""
    return np.asarray(True)


def _numbers_op(name: str, parameters: tuple[AttrSpec, ...], kernel: Callable[..., NDArray], doc: str) -> OpDef:
    def cases() -> tuple[OpCase, ...]:
        seed = integers((), 0, 9)
        return (
            example(seed, shape=(2, 3)),
            example(integers((_WORDS,), 0, 9), shape=(2, 16, 9, 8), dtype="float64"),
            OpCase("", (seed,), {"shape": (5,), "dtype": "float16", parameters[0].name: 0.5}),
        )

    return OpDef(
        name,
        (OperandSpec("seed"),),
        _infer_numbers,
        attrs=(
            AttrSpec("shape", AttrKind.DIMS, doc="Sizes of the result."),
            *parameters,
            AttrSpec("dtype", AttrKind.DTYPE, "float32", _DTYPES, doc="The dtype of the result."),
        ),
        flops=flops_per_element(8),
        kernel=NumpyKernel(kernel, gives=fixed_dtype(None)),
        rounding=NORM,
        cases=cases,
        doc=f"{doc} Equal seeds give equal numbers: the stream of `numpy.random.RandomState(seed)`, in float64, "
        "rounded once to the dtype.\n\n"
        "Shapes: ``seed`` an integer, or a vector of words, each from 0 to 2**32-1; the result is ``shape``.",
    )


OPS: tuple[OpDef, ...] = (
    OpDef(
        "random.seed",
        (),
        _infer_seed,
        traits=frozenset({Trait.NONDETERMINISTIC}),
        flops=no_flops,
        kernel=NumpyKernel(_seed, gives=fixed_dtype("int64")),
        rounding=Rounding(Rule.EQUAL, open_elements=_all_open),
        cases=lambda: (OpCase("", (), {}, "int64"),),
        doc=f"Return a seed, another seed in each run.\n\nShapes: ``-> ({_WORDS},)``, words from 0 to 2**32-1.",
    ),
    _numbers_op(
        "random.uniform",
        (
            AttrSpec("low", AttrKind.FLOAT, 0.0, doc="The least number."),
            AttrSpec("high", AttrKind.FLOAT, 1.0, doc="The end of the interval, not included."),
        ),
        _uniform,
        "Return numbers distributed uniformly from ``low`` to ``high``.",
    ),
    _numbers_op(
        "random.normal",
        (
            AttrSpec("mean", AttrKind.FLOAT, 0.0, doc="The mean."),
            AttrSpec("scale", AttrKind.FLOAT, 1.0, doc="The standard deviation."),
        ),
        _normal,
        "Return numbers of a normal distribution.",
    ),
)
"""The family's ops."""
