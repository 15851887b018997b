"""The first canonical case of each op with a kernel, in one program, beside the reference kernels in float64."""

from __future__ import annotations

import byoc_core
import numpy as np
import pytest
from byoc_core.backend.hooks import Rejection
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.ir import Function, TensorType, Trait
from byoc_core.ops import OpCase, default_ops
from byoc_core.ops.cases import canonical_cases, dtypes_of, new_function
from byoc_core.runtime.module import NDArray
from byoc_opencl.backend import byoc_codegen, byoc_supports
from byoc_opencl.declined import DECLINED
from byoc_opencl.kernels import FAMILIES
from byoc_opencl.module import OpenClModule

SEED = 5
INTEGER_OPS = ("add", "divide", "max", "nn.max_pool2d", "concat", "permute_dims", "argmax", "sum", "power", "clip")
"""Ops tried with int32 too."""

REFUSED = (("take", "index"), ("cast", "dtype"))
"""First cases without a kernel: indices possibly outside, and a cast to a half."""


def cases() -> list[tuple[OpCase, str]]:
    """Return the first case of each op, with the dtype of the case, and some with int32."""
    found = []
    for name in FAMILIES:
        case = canonical_cases(default_ops())[name][0]
        dtypes = dtypes_of(case, default_ops()[name])
        found += [(case, dtype) for dtype in dtypes if dtype == dtypes[0] or (dtype == "int32" and name in INTEGER_OPS)]
    return found


def reference(case: OpCase, dtype: str, inputs: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
    """Return the results of the reference kernel, for floats in float64."""
    op = default_ops()[case.op]
    assert op.kernel is not None
    is_float = dtype_info(dtype).kind == "float"
    wide = tuple(x.astype(np.float64) if is_float and x.dtype == to_numpy(dtype) else x for x in inputs)
    results = op.kernel(*wide, **op.normalise_attrs(case.attrs))
    return results if isinstance(results, tuple) else (results,)


def outputs_of(function: Function) -> list[NDArray]:
    outputs = []
    for type_ in function.result_types:
        assert isinstance(type_, TensorType)
        outputs.append(np.full([int(str(dim)) for dim in type_.shape or ()], 1, to_numpy(type_.dtype)))
    return outputs


@pytest.mark.parametrize("op", ["R.argmax(x, axis=1)", "R.argmin(x, axis=1)", 'R.take(x, i, axis=1, mode="clip")'])
def test_reading_an_element_of_an_axis_without_elements_is_refused(op: str) -> None:
    text = "def f(x: R.Tensor((4, {}), 'float32'), i: R.Tensor((2,), 'int64')):\n    y = {}\n    return y"
    for size, is_taken in (("'n'", False), ("'2*n'", False), ("'n+1'", True), ("3", True)):
        (binding,) = byoc_core.parse(text.format(size, op))["f"].bindings
        answer = byoc_supports(binding)
        if is_taken:
            assert not isinstance(answer, Rejection), (size, answer)
        else:
            assert isinstance(answer, Rejection), size
            assert answer.code == "index"


@pytest.mark.usefixtures("needs_device")
def test_each_op_with_a_kernel_computes_the_reference() -> None:
    """The bound covers sums of a few tens of terms, each within a few units of the last place of the largest."""
    tried = []
    for number, (case, dtype) in enumerate(cases()):
        function, binding = new_function(default_ops()[case.op], case.types(dtype), case.attrs, name=f"f{number}")
        answer = byoc_supports(binding)
        if isinstance(answer, Rejection):
            assert (case.op, answer.code) in REFUSED
            continue
        tried.append((case, dtype, function))
    result = byoc_codegen([function for _, _, function in tried])
    assert result.rejections == {}
    assert isinstance(result.module, OpenClModule)
    for case, dtype, function in tried:
        inputs = case.arrays(np.random.default_rng(SEED), dtype)
        outputs = outputs_of(function)
        result.module.get_function(function.name)(*inputs, *outputs)
        for found, expected in zip(outputs, reference(case, dtype, inputs), strict=True):
            assert found.shape == expected.shape, case
            if found.dtype.kind != "f":
                np.testing.assert_array_equal(found, expected, err_msg=str(case))
                continue
            largest = max(1.0, float(np.nanmax(np.abs(expected), initial=0)))
            bound = 64 * float(np.finfo(found.dtype).eps) / 2 * largest
            np.testing.assert_allclose(found, expected, rtol=0, atol=bound, err_msg=f"{case}, {dtype}")


def test_all_ops_of_the_core_have_a_kernel_or_a_reason() -> None:
    views = {name for name, op in default_ops().items() if Trait.RESHAPING in op.traits}
    decided = [*FAMILIES, *DECLINED, *views]
    assert sorted(decided) == sorted(set(decided))
    assert set(default_ops()) - set(decided) == set()
