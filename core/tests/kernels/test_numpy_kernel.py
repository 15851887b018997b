"""Declarations of kernels hold in every case and dtype: cheap forms, dtypes, memory, and silence."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
from byoc_core.kernels.numpy_kernel import KernelForm, NumpyKernel, arithmetic, run_quietly
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, dtypes_of
from byoc_core.opset.families import KERNELS

pytestmark = pytest.mark.interpreter

Array = np.ndarray[Any, Any]


def _runs(name: str) -> Iterator[tuple[list[Array], dict[str, Any], tuple[Array, ...], KernelForm]]:
    """Return operands, attributes, results and the form of each case in each dtype."""
    op = default_ops()[name]
    for index, case in enumerate(canonical_cases(default_ops())[name]):
        attrs = dict(op.normalise_attrs(case.attrs))
        for dtype in dtypes_of(case, op):
            arrays = list(case.arrays(np.random.default_rng(index), dtype))
            given = KERNELS[name](*arrays, **attrs)
            form = KERNELS[name].form_for([array.dtype for array in arrays], [array.ndim for array in arrays], attrs)
            yield arrays, attrs, given if isinstance(given, tuple) else (given,), form


def _same(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"random.seed"}))
def test_a_form_gives_what_the_kernel_gives_and_what_it_says(name: str) -> None:
    for arrays, attrs, results, form in _runs(name):
        given = run_quietly(form.call, *arrays, **attrs)
        found = given if isinstance(given, tuple) else (given,)
        assert len(found) == len(results)
        for result, expected in zip(found, results, strict=True):
            assert _same(np.asarray(result), expected)
            assert form.dtype in (None, expected.dtype)
            assert not (form.fresh and any(np.shares_memory(result, array) for array in arrays))
        if form.takes_out:
            (expected,) = results
            out = np.empty_like(expected)
            assert _same(np.asarray(run_quietly(form.call, *arrays, **attrs, out=out)), expected)
            for index, array in enumerate(arrays) if form.elementwise else ():
                if array.dtype == expected.dtype and array.shape == expected.shape:
                    operands = [other.copy() for other in arrays]
                    assert _same(run_quietly(form.call, *operands, **attrs, out=operands[index]), expected)


def test_most_ops_on_floats_are_functions_of_numpy_and_small_floats_are_not_widened_by_them() -> None:
    def form(name: str, dtype: str, rank: int = 2) -> KernelForm:
        kernel = KERNELS[name]
        count = len(inspect.signature(kernel).parameters)
        dtypes: list[Any] = [np.dtype(dtype)] * count
        return kernel.form_for(dtypes, [rank] * count, {})

    assert form("add", "float32").call is np.add
    assert form("exp", "float64").call is np.exp
    assert form("divide", "float32").call is np.divide
    assert form("divide", "int32").call is not np.divide
    assert form("power", "int32").call is not np.power
    assert form("add", "float32", rank=0).call is not np.add
    assert form("matmul", "float32").takes_out
    assert not form("matmul", "float16").takes_out


def test_unknown_dtypes_give_a_form_that_looks_at_the_operands() -> None:
    form = KERNELS["matmul"].form_for([None, np.dtype("float16")], [2, 2], {})
    half = np.full((3, 3), 300.0, "float16")
    assert (form.dtype, form.takes_out) == (None, False)
    assert run_quietly(form.call, half, half).dtype == "float16"


def test_dtypes_that_differ_are_no_promise() -> None:
    dtypes: list[Any] = [np.dtype("float32"), np.dtype("float64")]
    for name in ("add", "concat", "nn.bias_add", "matmul"):
        assert KERNELS[name].form_for(dtypes, [2, 2], {"axis": 0}).dtype is None


def test_memory_for_results_is_no_attribute() -> None:
    assert str(inspect.signature(KERNELS["nn.relu"])) == "(x: 'NDArray') -> 'NDArray'"
    assert list(inspect.signature(KERNELS["add"]).parameters) == ["x", "y"]


def test_kernels_are_silent_and_leave_the_settings_of_the_caller_alone() -> None:
    x = np.array([0.0, -1.0, np.inf])
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        before = np.geterr()
        assert np.isnan(KERNELS["log"](x)[1])
        assert np.geterr() == before
        with pytest.raises(FloatingPointError):
            np.log(x)


def test_errors_pass_through_a_quiet_call() -> None:
    def fail() -> None:
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError, match="no"):
        run_quietly(fail)


def test_a_quiet_call_can_be_nested_and_keeps_what_it_sets_to_itself() -> None:
    mine: ContextVar[int] = ContextVar("mine", default=0)

    def outer() -> tuple[int, Any]:
        mine.set(1)
        return run_quietly(mine.get), np.geterr()["divide"]

    assert run_quietly(outer) == (0, "ignore")
    assert mine.get() == 0


def test_numpy_without_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byoc_core.kernels.numpy_kernel._QUIET", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isneginf(arithmetic(np.log)(np.zeros(1))[0])


def test_all_kernels_are_of_one_kind() -> None:
    assert {type(kernel) for kernel in KERNELS.values()} == {NumpyKernel}
