"""The canonical cases: complete, accepted by the type rules, run by the reference kernels, with the promised types."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.dims import evaluate
from byoc_core.dtypes import computing_dtypes
from byoc_core.errors import IRTypeError
from byoc_core.ir import STRUCTURAL_OPS, TensorType
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, dtypes_of, new_function


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
