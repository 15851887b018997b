"""The canonical cases: complete, accepted by the type rules, run by the reference kernels, with the promised types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dims import evaluate
from byoc_core.dtypes import computing_dtypes, is_float
from byoc_core.errors import IRTypeError
from byoc_core.ir import STRUCTURAL_OPS, Function, IRModule, TensorType
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, dtypes_of, new_function
from byoc_core.opset.opdef import Trait
from byoc_core.transform import evaluate_function


def test_every_op_that_computes_has_cases_and_no_case_lacks_its_op() -> None:
    assert set(canonical_cases(default_ops())) == set(default_ops()) - {op.name for op in STRUCTURAL_OPS}


@pytest.mark.parametrize("name", sorted(canonical_cases(default_ops())))
def test_every_case_runs_in_every_dtype_and_gives_the_promised_types(name: str) -> None:
    op = default_ops()[name]
    assert op.kernel is not None
    for index, case in enumerate(canonical_cases(default_ops())[name]):
        attrs = op.normalise_attrs(case.attrs)
        for dtype in dtypes_of(case, op):
            _, binding = new_function(op, case.types(dtype), case.attrs)
            arrays = case.arrays(np.random.default_rng(index), dtype)
            given = op.kernel(*arrays, **attrs)
            for result, made in zip(binding.results, given if isinstance(given, tuple) else (given,), strict=True):
                assert isinstance(result.type, TensorType)
                assert result.type.shape is not None
                assert result.type.dtype == made.dtype.name
                own = {str(dim): size for dim, size in zip(result.type.shape, made.shape, strict=True)}
                sizes = {symbol: own[symbol] for symbol in result.type.symbols}
                assert tuple(evaluate(dim, sizes) for dim in result.type.shape) == made.shape


@pytest.mark.parametrize("name", sorted(canonical_cases(default_ops())))
def test_the_oracle_in_float64_has_the_shapes_of_every_case_and_of_its_scalars(name: str) -> None:
    op = default_ops()[name]
    for index, case in enumerate(canonical_cases(default_ops())[name]):
        for dtype in dtypes_of(case, op):
            function, binding = new_function(op, case.types(dtype), case.attrs)
            arrays = case.arrays(np.random.default_rng(index), dtype)
            _check_shapes_of_the_oracle(function, arrays)
            if Trait.ELEMENTWISE in op.traits:
                scalars = [TensorType((), array.dtype.name) for array in arrays]
                function, _ = new_function(op, scalars, binding.attrs)
                _check_shapes_of_the_oracle(function, [np.resize(array, ()) for array in arrays])


def _check_shapes_of_the_oracle(function: Function, arrays: Sequence[npt.NDArray[Any]]) -> None:
    module = IRModule({function.name: function})
    results, exact = (evaluate_function(module, function.name, arrays, exact=exact) for exact in (False, True))
    for result, wide in zip(results, exact, strict=True):
        assert wide.shape == result.shape
        assert wide.dtype == (np.float64 if is_float(result.dtype.name) else result.dtype)


def test_the_oracle_reads_bits_in_the_dtype_of_the_program() -> None:
    op = default_ops()["bitcast"]
    function, _ = new_function(op, [TensorType((3,), "float32")], {"dtype": "int32"})
    x = np.array([1, -0.0, 1e-40], np.float32)
    (exact,) = evaluate_function(IRModule({function.name: function}), "main", [x], exact=True)
    np.testing.assert_array_equal(exact, x.view(np.int32))


@pytest.mark.parametrize("name", sorted(canonical_cases(default_ops())))
def test_the_dtypes_of_an_op_are_those_its_rule_takes(name: str) -> None:
    op = default_ops()[name]
    for case in canonical_cases(default_ops())[name]:
        taken = dtypes_of(case, op)
        assert taken[0] == case.dtype
        if any(operand.dtype is None for operand in case.operands):
            for dtype in set(computing_dtypes()) - set(taken):
                with pytest.raises(IRTypeError):
                    new_function(op, case.types(dtype), case.attrs)


@pytest.mark.parametrize(
    "name", sorted(name for name, cases in canonical_cases(default_ops()).items() if cases[0].operands)
)
def test_every_op_takes_a_case_of_symbolic_sizes(name: str) -> None:
    op, taken = default_ops()[name], 0
    for case in canonical_cases(default_ops())[name]:
        for everywhere in (False, True):
            types = case.symbolic_types(everywhere=everywhere)
            if any(type_.symbols for type_ in types):
                try:
                    new_function(op, types, case.attrs)
                except IRTypeError:
                    continue
                taken += 1
    assert taken > 0 or name in ("range", "full", "as_size")
