"""Functions compiled through the backend's hooks, and run beside the reference kernels in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import byoc_dnnl.backend as dnnl
import numpy as np
import numpy.typing as npt
from byoc_core.backend.info import CompileContext
from byoc_core.ir import Binding, Constant, Function, FunctionBuilder, IRModule, TensorType, Value, Var
from byoc_core.kernels import KERNELS
from byoc_core.ops import default_ops
from byoc_dnnl.engine import DnnlModule

NDArray = npt.NDArray[Any]
UNIT = 2.0**-24
TINY = 2.0**-126


class Region:
    """One function, compiled."""

    def __init__(self, *, seed: int = 0) -> None:
        self.builder = FunctionBuilder("f", ops=default_ops())
        self._generator = np.random.default_rng(seed)
        self._function: Function | None = None
        self._module: DnnlModule | None = None

    def draw(self, *shape: int) -> NDArray:
        return self._generator.standard_normal(shape).astype(np.float32)

    def finish(self, *results: Value) -> Region:
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

    @property
    def source(self) -> str:
        return self.module.get_source()

    def run(self, *inputs: NDArray) -> tuple[NDArray, ...]:
        """Gives what the region computes; outputs are filled with something else beforehand."""
        outputs = [np.full(_shape(value), 7.0, np.float32) for value in self.function.results]
        before = [array.copy() for array in inputs]
        self.module.get_function("f")(*inputs, *outputs)
        for array, copy in zip(inputs, before, strict=True):
            np.testing.assert_array_equal(array, copy)
        return tuple(outputs)

    def oracle(self, *inputs: NDArray, magnitudes: bool = False) -> tuple[NDArray, ...]:
        """Gives the results in float64; ``magnitudes``: of the sizes of all numbers, with sums for differences."""
        change = np.abs if magnitudes else np.asarray
        values: dict[Value, NDArray] = {
            param: change(array.astype(np.float64)) for param, array in zip(self.function.params, inputs, strict=True)
        }

        def value_of(value: Value) -> NDArray:
            if isinstance(value, Constant):
                return change(self.builder.constants[value.digest].astype(np.float64))
            return values[value]

        with np.errstate(all="ignore"):
            for binding in self.function.bindings:
                values[binding.result] = self._evaluate(binding, [value_of(v) for v in binding.operands], magnitudes)
        return tuple(value_of(value) for value in self.function.results)

    @staticmethod
    def _evaluate(binding: Binding, operands: Sequence[NDArray], magnitudes: bool) -> NDArray:
        name = binding.op.name
        if magnitudes and name in ("subtract", "nn.relu"):
            return np.asarray(operands[0] + operands[1] if name == "subtract" else operands[0])
        return np.asarray(KERNELS[name](*operands, **binding.attrs))


def _shape(value: Value) -> tuple[int, ...]:
    assert isinstance(value, Var)
    assert isinstance(value.type, TensorType)
    return tuple(dim for dim in value.type.shape or () if isinstance(dim, int))


def check_sums(region: Region, inputs: Sequence[NDArray], length: int) -> None:
    """Holds sums of ``length`` operations to ``gamma_length * sum |a||b|`` (Higham, section 3.1)."""
    gamma = length * UNIT / (1 - length * UNIT)
    found, exact = region.run(*inputs), region.oracle(*inputs)
    for actual, wanted, magnitude in zip(found, exact, region.oracle(*inputs, magnitudes=True), strict=True):
        assert actual.shape == wanted.shape
        assert np.isfinite(actual).all()
        excess = np.abs(actual.astype(np.float64) - wanted) - (gamma * magnitude + length * TINY)
        assert excess.max() <= 0, excess.max()
