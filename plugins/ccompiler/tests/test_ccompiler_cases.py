"""Every canonical case of moving, indexing, ordering, quantising and recurrent ops, compiled, beside the references.

Movements and integers have equal bits; computed floats are compared with the reference in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import byoc_ccompiler.backend as ccompiler
import numpy as np
import numpy.typing as npt
import pytest
from byoc_ccompiler.options import CCompilerOptions
from byoc_core.backend.hooks import CompileContext, Rejection
from byoc_core.dtypes import all_dtypes, dtype_info, to_numpy
from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.ir import Function, TensorType
from byoc_core.ops import default_ops
from byoc_core.ops.cases import OpCase, canonical_cases, dtypes_of, new_function
from byoc_core.runtime import threads
from byoc_core.runtime.threads.openmp import load_openmp

from plugins.ccompiler.tests.bench import MEANING, PORTABLE, Bench

NDArray = npt.NDArray[Any]
CONTEXT = CompileContext("ccompiler", CCompilerOptions.model_validate({}))
SEED = 5

MOVING = """
reshape squeeze expand_dims concat split strided_slice nn.pad nn.border_pad tile flip roll stack trilu depth_to_space
space_to_depth reverse_sequence take gather_elements gather_nd one_hot scatter_slice full shape_of size shape_to_tensor
"""
EXACT = "scatter_elements scatter_nd arange sort argsort topk argmin argmax cumsum cumprod quantize dequantize"
ROUNDING = "einsum nn.resize nn.roi_align nn.lrn nn.group_norm nn.rotary_embedding nn.attention nn.rnn nn.gru nn.lstm"


def _cases(names: str) -> Iterator[tuple[OpCase, str]]:
    """Yield the cases of ops accepted by the backend, each with a dtype."""
    for name in names.split():
        for case in canonical_cases(default_ops())[name]:
            for dtype in dtypes_of(case, default_ops()[name]):
                _, binding = new_function(default_ops()[name], case.types(dtype), case.attrs)
                answer = ccompiler.byoc_supports(binding, CONTEXT)
                if isinstance(answer, Rejection):
                    assert answer.text == f"C has no type for {dtype}", (name, dtype)
                else:
                    yield case, dtype


def _add_all(bench: Bench, cases: Iterator[tuple[OpCase, str]]) -> list[tuple[OpCase, str, Function]]:
    added = []
    for case, dtype in cases:
        function, _ = new_function(
            default_ops()[case.op], case.types(dtype), case.attrs, name=f"f{len(bench.functions)}"
        )
        bench.functions.append(function)
        added.append((case, dtype, function))
    return added


def _run(bench: Bench, function: Function, inputs: tuple[NDArray, ...]) -> list[NDArray]:
    outputs = []
    for type_ in function.result_types:
        assert isinstance(type_, TensorType)
        outputs.append(np.full([int(str(dim)) for dim in type_.shape or ()], 1, to_numpy(type_.dtype)))
    bench.module.get_function(function.name)(*inputs, *outputs)
    return outputs


def _reference(case: OpCase, inputs: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
    op = default_ops()[case.op]
    assert op.kernel is not None
    results = op.kernel(*inputs, **op.normalise_attrs(case.attrs))
    return results if isinstance(results, tuple) else (results,)


def _bytes(array: NDArray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("march", ["native", PORTABLE])
@pytest.mark.parametrize("names", [MOVING, EXACT], ids=["moving", "exact"])
def test_what_moves_or_does_not_round_differently_gives_the_same_bits(names: str, march: str) -> None:
    bench = Bench(opt_level=0, march=march)
    added = _add_all(bench, _cases(names))
    assert {case.op for case, _, _ in added} == set(names.split())
    for case, dtype, function in added:
        inputs = case.arrays(np.random.default_rng(SEED), dtype)
        for actual, expected in zip(_run(bench, function, inputs), _reference(case, inputs), strict=True):
            assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), (case, dtype)
            assert _bytes(actual) == _bytes(expected), (case, dtype)


@pytest.mark.parametrize("march", ["native", PORTABLE])
def test_what_rounds_is_as_near_to_the_exact_result_as_the_reference(march: str) -> None:
    """The bound covers sums of a few tens of terms, each within a few units of the last place of the largest."""
    bench = Bench(opt_level=MEANING, march=march)
    added = _add_all(bench, _cases(ROUNDING))
    assert {case.op for case, _, _ in added} == set(ROUNDING.split())
    for case, dtype, function in added:
        inputs = case.arrays(np.random.default_rng(SEED), dtype)
        is_float = dtype_info(dtype).kind == "float"
        wide = tuple(x.astype(np.float64) if is_float and x.dtype == to_numpy(dtype) else x for x in inputs)
        for actual, expected in zip(_run(bench, function, inputs), _reference(case, wide), strict=True):
            assert (actual.shape, actual.dtype) == (expected.shape, to_numpy(dtype)), (case, dtype)
            if not is_float:
                np.testing.assert_array_equal(actual, expected)
                continue
            error = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
            assert np.all(error <= 64 * _unit(dtype) * max(1.0, float(np.abs(expected).max(initial=0)))), (case, dtype)


def _unit(dtype: str) -> float:
    """Return the unit roundoff of a floating-point dtype."""
    return 2.0 ** -{"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[dtype]


def test_moves_are_compiled_for_all_dtypes_that_c_holds() -> None:
    dtypes = {dtype for _, dtype in _cases("reshape take scatter_slice nn.pad")}
    narrow = {
        "int2",
        "int4",
        "uint2",
        "uint4",
        *(name for name in all_dtypes() if name.startswith(("float4", "float8"))),
    }
    assert {dtype for dtype in all_dtypes() if dtype not in dtypes} == narrow


@pytest.mark.parametrize("march", ["native", PORTABLE])
def test_empty_axes_are_right_and_known_to_be_empty_without_a_warning(march: str) -> None:
    """Each size of each case in turn is 0, in all places; cases refused by the type rules are left out."""
    bench = Bench(opt_level=0, march=march)
    added: list[tuple[OpCase, Function]] = []
    for name in f"{MOVING} {EXACT} {ROUNDING}".split():
        for case in canonical_cases(default_ops())[name]:
            for size in sorted({size for operand in case.operands for size in operand.shape if size > 1}):
                empty = _with_empty(case, size)
                try:
                    function, binding = new_function(
                        default_ops()[name], empty.types(), empty.attrs, name=f"f{len(bench.functions)}"
                    )
                except IRTypeError:
                    continue
                if isinstance(ccompiler.byoc_supports(binding, CONTEXT), Rejection):
                    continue
                bench.functions.append(function)
                added.append((empty, function))
    assert len(added) > 100
    for case, function in added:
        inputs = case.arrays(np.random.default_rng(SEED))
        try:
            expected = _reference(case, inputs)
        except ExecutionError:
            with pytest.raises(ExecutionError):
                _run(bench, function, inputs)
            continue
        for actual, right in zip(_run(bench, function, inputs), expected, strict=True):
            assert actual.shape == right.shape, case
            if case.op in ROUNDING.split():
                np.testing.assert_allclose(actual, right, rtol=64 * _unit("float32"), atol=64 * _unit("float32"))
            else:
                assert _bytes(actual) == _bytes(right), case


def _with_empty(case: OpCase, size: int) -> OpCase:
    """Return a case with a size replaced by 0 in all operands."""
    operands = tuple(
        replace(operand, shape=tuple(0 if dim == size else dim for dim in operand.shape)) for operand in case.operands
    )
    return replace(case, operands=operands)


@pytest.mark.skipif(load_openmp() is None, reason="the system has no libgomp")
def test_the_bits_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loop uses several threads in one build, and a single thread in the other."""
    benches, added = [], []
    for work in (1, 10**18):
        monkeypatch.setattr("byoc_core.authoring.csource_parallel.PARALLEL_WORK_PS", work)
        bench = Bench(opt_level=MEANING)
        cases = (
            case for name in f"{MOVING} {EXACT} {ROUNDING}".split() for case in canonical_cases(default_ops())[name]
        )
        added = [(case, function) for case, _, function in _add_all(bench, ((case, case.dtype) for case in cases))]
        benches.append((bench, bench.module))
    assert benches[0][1].get_source("c").count("byoc_parallel_for(") > len(added) / 2
    for case, function in added:
        inputs = case.arrays(np.random.default_rng(SEED))
        alone = _run(benches[1][0], function, inputs)
        for number in (2, 3):
            token = threads.enter_call(number)
            try:
                shared = _run(benches[0][0], function, inputs)
            finally:
                threads.leave_call(token)
            assert [_bytes(array) for array in shared] == [_bytes(array) for array in alone], (case, number)
