"""Functions compiled through the backend's hooks, and run beside the reference kernels in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import byoc_dnnl.backend as dnnl
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.backend.hooks import CompileContext, Rejection, Support
from byoc_core.dims import Dim, evaluate
from byoc_core.dtypes import dtype_name, is_float, to_numpy
from byoc_core.ir import Binding, Constant, Function, FunctionBuilder, IRModule, TensorType, Value, Var
from byoc_core.ir.builder import Operand
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS
from byoc_core.runtime import bind_symbols
from byoc_core.runtime.module import TensorSpec
from byoc_dnnl.capi import Isa
from byoc_dnnl.engine import DnnlModule, open_engine
from byoc_dnnl.library import Missing, find_library
from byoc_dnnl.precision import multiplies_bytes

NDArray = npt.NDArray[Any]
UNIT = 2.0**-24
TINY = 2.0**-126


class Region:
    """A compiled function."""

    def __init__(self, *, seed: int = 0) -> None:
        self.builder = FunctionBuilder("f", ops=default_ops())
        self._generator = np.random.default_rng(seed)
        self._function: Function | None = None
        self._module: DnnlModule | None = None

    def draw(self, *shape: int) -> NDArray:
        return self._generator.standard_normal(shape).astype(np.float32)

    def finish(self, *results: Value) -> Self:
        self._function = self.builder.finish(*results)
        return self

    @property
    def function(self) -> Function:
        assert self._function is not None
        return self._function

    @property
    def ir(self) -> IRModule:
        return IRModule({"f": self.function}, self.builder.constants)

    @property
    def module(self) -> DnnlModule:
        if self._module is None:
            context = CompileContext("dnnl", None, self.builder.constants)
            result = dnnl.byoc_codegen([self.function], context)
            assert not result.rejections, result.rejections
            assert isinstance(result.module, DnnlModule)
            self._module = result.module
        return self._module

    def judge(self, binding: Binding) -> Support | Rejection:
        """Return the backend's answer about an op on values and constants of the function."""
        return dnnl.byoc_supports(binding, CompileContext("dnnl", None, self.builder.constants))

    @property
    def source(self) -> str:
        return self.module.get_source()

    def run(self, *inputs: NDArray) -> tuple[NDArray, ...]:
        """Return the region's results; outputs are filled with other values beforehand."""
        sizes = self._sizes(inputs)
        outputs = [np.full(_shape(value, sizes), 7.0, _dtype(value)) for value in self.function.results]
        before = [array.copy() for array in inputs]
        self.module.get_function("f")(*inputs, *outputs)
        for array, copy in zip(inputs, before, strict=True):
            np.testing.assert_array_equal(array, copy)
        return tuple(outputs)

    def oracle(self, *inputs: NDArray, magnitudes: bool = False) -> tuple[NDArray, ...]:
        """Return the results, floats in float64; ``magnitudes``: of all numbers' magnitudes, differences as sums."""

        def change(array: NDArray) -> NDArray:
            if not is_float(dtype_name(array.dtype)):
                return array
            wide = array.astype(np.float64)
            return np.abs(wide) if magnitudes else wide

        values: dict[Value, NDArray] = {
            param: change(array) for param, array in zip(self.function.params, inputs, strict=True)
        }

        def value_of(value: Value) -> NDArray:
            if isinstance(value, Constant):
                return change(self.builder.constants[value.digest])
            return values[value]

        with np.errstate(all="ignore"):
            for binding in self.function.bindings:
                operands = [value_of(value) for value in binding.operands]
                values[binding.result] = self._evaluate(binding, operands, self._sizes(inputs), magnitudes)
        return tuple(value_of(value) for value in self.function.results)

    def _sizes(self, inputs: Sequence[NDArray]) -> dict[str, int]:
        """Return the sizes of the symbols."""
        specs = [TensorSpec(param.name, "float32", _dims(param)) for param in self.function.params]
        return bind_symbols(specs, inputs)

    @staticmethod
    def _evaluate(binding: Binding, operands: Sequence[NDArray], sizes: Mapping[str, int], magnitudes: bool) -> NDArray:
        name = binding.op.name
        if magnitudes and name in ("subtract", "nn.relu"):
            return np.asarray(operands[0] + operands[1] if name == "subtract" else operands[0])
        attrs = dict(binding.attrs)
        if name == "reshape":
            attrs["shape"] = _shape(binding.result, sizes)
        result = np.asarray(KERNELS[name](*operands, **attrs))
        return np.abs(result) if magnitudes and name == "dequantize" else result


def _dims(value: Value) -> tuple[Dim, ...]:
    assert isinstance(value.type, TensorType)
    return tuple(value.type.shape or ())


def _shape(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(dim, sizes) for dim in _dims(value))


def _dtype(value: Value) -> np.dtype[Any]:
    assert isinstance(value.type, TensorType)
    return to_numpy(value.type.dtype)


def emit(region: Region, op: str, *operands: Operand, **attrs: object) -> Var:
    """Add a call with a single result, and return the result."""
    (result,) = region.builder.bind(op, operands, attrs).results
    return result


def all_magnitudes() -> NDArray:
    """Return numbers of all magnitudes and both signs, subnormals included, and many near the bends of functions."""
    generator = np.random.default_rng(0)
    fractions = generator.integers(0, 1 << 23, (255, 64), dtype=np.uint32)
    fractions[:, 0], fractions[:, 1] = 0, (1 << 23) - 1
    found = (fractions | (np.arange(255, dtype=np.uint32)[:, None] << 23)).ravel().view(np.float32)
    bends = np.linspace(-110, 110, 8001, dtype=np.float32)
    return np.concatenate([found, -found, bends, bends / 32, [0.0, -0.0]]).astype(np.float32)


def check_sums(region: Region, inputs: Sequence[NDArray], length: int) -> None:
    """Check sums of ``length`` operations against ``gamma_length * sum |a||b|`` (Higham, section 3.1)."""
    gamma = length * UNIT / (1 - length * UNIT)
    found, exact = region.run(*inputs), region.oracle(*inputs)
    for actual, wanted, magnitude in zip(found, exact, region.oracle(*inputs, magnitudes=True), strict=True):
        assert actual.shape == wanted.shape
        assert np.isfinite(actual).all()
        excess = np.abs(actual.astype(np.float64) - wanted) - (gamma * magnitude + length * TINY)
        assert excess.max() <= 0, excess.max()


def need_avx512() -> None:
    """Skip a test of choices made only by oneDNN's implementations for AVX-512."""
    found = find_library()
    if isinstance(found, Missing) or found.isa & Isa.AVX512_CORE != Isa.AVX512_CORE:
        pytest.skip("oneDNN has no AVX-512 here")


def multiplies_integers() -> bool:
    """Return whether products of bytes stay products of bytes; else the ops before them give floats."""
    return multiplies_bytes(open_engine().isa)


def need_products_of_bytes() -> None:
    """Skip a test of rewritten products of bytes if oneDNN computes these on bytes."""
    if not multiplies_integers():
        pytest.skip("oneDNN has no instructions for bytes here")


class Quantised(Region):
    """A region of quantised tensors."""

    def integers(self, *shape: int, dtype: str = "int8") -> NDArray:
        limits = np.iinfo(dtype)
        return self._generator.integers(limits.min, limits.max + 1, shape).astype(dtype)

    def scalar(self, number: float, dtype: str) -> Value:
        return self.builder.const(np.array(number, dtype))

    def restore(self, value: Value, scale: float, zero: int, dtype: str = "uint8") -> Var:
        return emit(self, "dequantize", value, self.scalar(scale, "float32"), self.scalar(zero, dtype))

    def quantise(self, value: Value, scale: float, zero: int, dtype: str = "uint8") -> Var:
        return emit(self, "quantize", value, self.scalar(scale, "float32"), self.scalar(zero, dtype))

    def weights(self, *shape: int, axis: int = 0) -> Var:
        """Return constant weights with a scale for each index of an axis."""
        size = shape[axis]
        scale = self._generator.uniform(0.5, 1.5, size).astype(np.float32) / (73 * np.sqrt(np.prod(shape) / size))
        parameters = [self.integers(*shape), scale.astype(np.float32), np.zeros(size, np.int8)]
        return emit(self, "dequantize", *map(self.builder.const, parameters), axis=axis)
