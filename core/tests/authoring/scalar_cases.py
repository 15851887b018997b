"""Every elementwise op on every dtype: operands and expected results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.authoring.csource_scalars import SCALAR_OPS
from byoc_core.authoring.csource_types import C_TYPES, HALF_DTYPES
from byoc_core.dtypes import is_float
from byoc_core.errors import ByocError
from byoc_core.ir import FunctionBuilder, TensorType, tensor
from byoc_core.ops import default_ops

from core.tests.authoring.header_bounds import MAGNITUDES, assert_close, stated_bounds

__all__ = ["CASES", "COUNT", "C_LIBRARY", "DTYPES", "Bounds", "ScalarCase", "check_results", "operands_of"]

NDArray = npt.NDArray[Any]
Bounds = Mapping[str, tuple[float, str]]
COUNT = 611  # prime: no multiple of a vector

HEADERS = {"float32": "byoc_math_f32.h", "float64": "byoc_math_f64.h"}
ACTIVATIONS = "byoc_activations.h"

DTYPES = tuple(dtype for dtype in C_TYPES if dtype not in HALF_DTYPES)

ATTRIBUTES: Mapping[str, Sequence[dict[str, Any]]] = {
    "cast": [{"dtype": dtype} for dtype in DTYPES],
    "clip": [{"min": -1.5, "max": 2.1}, {"min": 0.0, "max": 3.0}, {"min": 0.1}, {"max": 0.1}, {}],
    "isinf": [{"detect_negative": n, "detect_positive": p} for n in (False, True) for p in (False, True)],
    "mod": [{"fmod": False}, {"fmod": True}],
    "nn.celu": [{}, {"alpha": 0.3}],
    "nn.elu": [{}, {"alpha": 0.3}],
    "nn.gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "nn.hard_sigmoid": [{}, {"alpha": 0.3, "beta": 0.7}],
    "nn.leaky_relu": [{"alpha": 0.3}],
    "nn.selu": [{}, {"alpha": 0.3, "gamma": 0.7}],
    "nn.shrink": [{}, {"lambd": 0.1, "bias": 1.9}, {"lambd": 1e300, "bias": 1e300}],
    "nn.swish": [{}, {"alpha": 1.7}, {"alpha": -0.3}, {"alpha": 0.0}],
    "nn.thresholded_relu": [{}, {"alpha": 0.1}, {"alpha": -0.1}, {"alpha": 1e300}],
}

# The C library's own, in units in the last place: what the GNU one states, rounded up.
C_LIBRARY: Mapping[str, tuple[float, str]] = {
    **dict.fromkeys(["sin", "cos", "tan", "asin", "acos", "atan", "power"], (1.5, "result")),
    **dict.fromkeys(["sinh", "cosh", "asinh", "acosh", "atanh"], (2.5, "result")),
}


@dataclass(frozen=True)
class ScalarCase:
    """An op on operands of given dtypes."""

    op: str
    attrs: Mapping[str, Any]
    dtypes: tuple[str, ...]
    result: str

    def __str__(self) -> str:
        return f"{self.op} {dict(self.attrs)} {self.dtypes} -> {self.result}"


def _cases() -> Iterator[ScalarCase]:
    """Yield every op of the table on every dtype permitted by the type rule."""
    for name, op in default_ops().items():
        if name not in SCALAR_OPS:
            continue
        for dtype in DTYPES:
            dtypes = ["bool", dtype, dtype] if name == "where" else [dtype] * len(op.operands)
            for attrs in ATTRIBUTES.get(name, [{}]):
                builder = FunctionBuilder("f", ops=default_ops())
                operands = [builder.param(f"x{k}", tensor((COUNT,), d)) for k, d in enumerate(dtypes)]
                try:
                    binding = builder.bind(name, operands, attrs)
                except ByocError:
                    continue
                (result,) = binding.results
                assert isinstance(result.type, TensorType)
                yield ScalarCase(name, binding.attrs, tuple(dtypes), result.type.dtype)


CASES = tuple(_cases())


def _samples(dtype: str, seed: int) -> NDArray:
    """Return awkward values, then random values of all sizes, in a different order for every operand."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(COUNT) > 0.5
    if is_float(dtype):
        info: Any = np.finfo(dtype)
        awkward = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, -3, 0.1, -0.1, 88, -88]
        awkward += [info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal, -info.smallest_subnormal]
        points = np.array([1, -1, 0.1, 3], dtype)
        near = np.concatenate([np.nextafter(points, info.dtype.type(towards)) for towards in (-9, 9)])
        signs = rng.choice([-1.0, 1.0], COUNT)
        wide = signs * np.exp2(rng.uniform(-20, 8, COUNT))
        return rng.permutation(np.concatenate([awkward, near, wide])[:COUNT].astype(dtype))
    limits = np.iinfo(dtype)
    awkward = [0, 1, 2, limits.max, limits.min, limits.max - 1, limits.min + 1, limits.bits, limits.bits - 1]
    small = rng.integers(max(limits.min, -9), 9, COUNT // 2, dtype=dtype)
    anything = rng.integers(limits.min, limits.max, COUNT, dtype=dtype, endpoint=True)
    return rng.permutation(np.concatenate([np.array(awkward, dtype), small, anything])[:COUNT])


def operands_of(case: ScalarCase) -> list[NDArray]:
    """Return the operands of a case."""
    arrays = [_samples(dtype, seed) for seed, dtype in enumerate(case.dtypes)]
    if case.op == "cast" and is_float(case.dtypes[0]) and not is_float(case.result) and case.result != "bool":
        limits = np.iinfo(case.result)  # beyond them a cast has no defined result
        arrays[0] = np.clip(np.nan_to_num(arrays[0]), max(limits.min, -1e6), min(limits.max, 1e6))
    return arrays


def _kernel(case: ScalarCase, operands: Sequence[NDArray]) -> NDArray:
    kernel = default_ops()[case.op].kernel
    assert kernel is not None
    return np.asarray(kernel(*operands, **case.attrs))


def check_results(case: ScalarCase, operands: Sequence[NDArray], actual: NDArray, library: Bounds = C_LIBRARY) -> None:
    """Check results, within the bounds of the headers and of a library's functions, or for equality."""
    bounds = {**library, **stated_bounds(HEADERS.get(case.dtypes[0], ACTIVATIONS)), **stated_bounds(ACTIVATIONS)}
    function = case.op.removeprefix("nn.") + ("_tanh" if case.attrs.get("approximate") == "tanh" else "")
    if function not in bounds or not is_float(case.dtypes[0]):
        np.testing.assert_array_equal(actual, _kernel(case, operands), err_msg=str(case))
        return
    bound, unit = bounds[function]
    wide = [operand.astype(np.float64) for operand in operands]
    exact = _kernel(case, wide)
    # In float64 the oracle errs as well.
    slack = 2 if actual.dtype == np.float64 else 1
    assert_close(actual, exact, MAGNITUDES[unit](wide[0], exact), bound * slack, str(case))
