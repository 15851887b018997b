"""Kernels of random numbers against numpy's generator, and the promises of the IR about drawn seeds."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.ir import Constant, TensorType, has_effect, is_pure
from byoc_core.ops import default_ops
from byoc_core.ops.cases import new_function
from byoc_core.opset.families import KERNELS
from byoc_core.transform import (
    EliminateCommonSubexpressions,
    FoldConstants,
    HoistSeeds,
    RemoveDeadCode,
    Sequential,
    default_passes,
)
from hypothesis import given
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.ir_text import check_pass, check_unchanged, parse_main

ORACLES = {
    "random.normal": "numpy.random.RandomState.normal",
    "random.seed": "the seeds of other runs, and statistics of the words",
    "random.uniform": "numpy.random.RandomState.uniform",
}
"""The oracles of ops missing in ONNX Runtime."""

_X = 'x: R.Tensor((3,), "float32")'
_DTYPES = ("float16", "bfloat16", "float32", "float64")


def _call(name: str, *inputs: Any, **attrs: object) -> Any:
    return KERNELS[name](*map(np.asarray, inputs), **default_ops()[name].normalise_attrs(attrs))


_WORDS = st.integers(0, 2**32 - 1)


@given(
    seed=_WORDS | st.lists(_WORDS, min_size=1, max_size=5),
    shape=st.lists(st.integers(0, 4), max_size=3),
    dtype=st.sampled_from(_DTYPES),
    parameters=st.tuples(st.floats(-4, 4), st.floats(0, 4)),
)
def test_numbers_of_seeds(seed: Any, shape: list[int], dtype: str, parameters: tuple[float, float]) -> None:
    first, second = parameters
    seed = np.array(seed)  # numpy takes an array of a single word as the word
    normal = np.random.RandomState(seed).normal(first, second, shape)
    result = _call("random.normal", seed, shape=shape, mean=first, scale=second, dtype=dtype)
    assert result.dtype == to_numpy(dtype)
    np.testing.assert_array_equal(result, np.asarray(normal).astype(to_numpy(dtype)))
    uniform = np.asarray(np.random.RandomState(seed).uniform(first, first + second, shape)).astype(to_numpy(dtype))
    result = _call("random.uniform", seed, shape=shape, low=first, high=first + second, dtype=dtype)
    assert (result.shape, result.dtype) == (tuple(shape), to_numpy(dtype))
    is_end = uniform == np.asarray(first + second).astype(to_numpy(dtype))
    np.testing.assert_array_equal(result[~is_end], uniform[~is_end])


@pytest.mark.parametrize("dtype", _DTYPES[:3])
def test_the_end_of_the_interval_is_no_number(dtype: str) -> None:
    """With few digits many numbers are rounded to the end of the interval."""
    numbers = _call("random.uniform", 1, shape=(100000,), dtype=dtype)
    assert 0 <= numbers.min() < numbers.max() < 1
    numbers = _call("random.uniform", 1, shape=(100000,), low=5.0, high=3.0, dtype=dtype)
    assert 3 < numbers.min() < numbers.max() <= 5
    assert set(_call("random.uniform", 1, shape=(9,), low=2.0, high=2.0, dtype=dtype).tolist()) == {2}


def test_seeds_of_runs_differ() -> None:
    seeds = np.stack([_call("random.seed") for _ in range(2000)])
    assert seeds.dtype == np.int64
    assert 0 <= seeds.min() < seeds.max() < 2**32
    assert np.unique(seeds, axis=0).shape == seeds.shape
    bits = (seeds[..., np.newaxis] >> np.arange(32)) & 1
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6 * 0.5 / 2000**0.5


@pytest.mark.parametrize("seed", [-1, 2**32, [1, -1], []])
@pytest.mark.parametrize("name", ["random.uniform", "random.normal"])
def test_seeds_out_of_range(name: str, seed: Any) -> None:
    with pytest.raises(ExecutionError, match=rf"op `{name}`.* has an invalid seed; got .*, expected words from 0"):
        _call(name, np.array(seed, np.int64), shape=(2,))


def test_types() -> None:
    uniform = default_ops()["random.uniform"]
    for seed, attrs, problem in (
        (TensorType((2, 2), "int64"), {"shape": (2,)}, "is no seed; got rank 2"),
        (TensorType((), "float32"), {"shape": (2,)}, "has a dtype not accepted"),
        (TensorType((), "int64"), {"shape": (-2,)}, "attribute `shape` has a negative size"),
        (TensorType((), "int64"), {"shape": (2,), "dtype": "int32"}, "value not permitted"),
    ):
        with pytest.raises(IRTypeError, match=problem):
            new_function(uniform, [seed], attrs)


# The IR


def test_a_drawn_seed_is_impure_without_an_effect() -> None:
    _, seed = new_function(default_ops()["random.seed"], [], {})
    _, uniform = new_function(default_ops()["random.uniform"], [TensorType((), "int64")], {"shape": (2,)})
    assert (is_pure(seed, {}), has_effect(seed, {})) == (False, False)
    assert (is_pure(uniform, {}), has_effect(uniform, {})) == (True, False)


def test_drawn_seeds_are_not_merged_and_removed_if_unread() -> None:
    two = (
        "s = R.random.seed()\nt = R.random.seed()\na = R.random.uniform(s, shape=(3,))\n"
        "b = R.random.uniform(t, shape=(3,))\nreturn a, b"
    )
    check_unchanged(EliminateCommonSubexpressions(), _X, two)
    check_unchanged(FoldConstants(), _X, two)
    unread = "s = R.random.seed()\na = R.random.uniform(s, shape=(3,))\nb = R.negative(x)\nreturn b"
    for transform in (RemoveDeadCode(), Sequential(default_passes())):
        check_pass(transform, _X, unread, "b = R.negative(x)\nreturn b")


def test_equal_ops_on_a_seed_are_merged() -> None:
    check_pass(
        EliminateCommonSubexpressions(),
        _X,
        "s = R.random.seed()\na = R.random.uniform(s, shape=(3,))\nb = R.random.uniform(s, shape=(3,))\nreturn a, b",
        "s = R.random.seed()\na = R.random.uniform(s, shape=(3,))\nreturn a, a",
    )


def test_numbers_of_constant_seeds_are_constants() -> None:
    module = FoldConstants()(parse_main("", 'a = R.random.normal(R.const(3, "int64"), shape=(4,))\nreturn a'))
    (result,) = module["main"].results
    assert isinstance(result, Constant)
    expected = np.random.RandomState(3).standard_normal(4).astype(np.float32)
    np.testing.assert_array_equal(module.constants[result.digest], expected)


def test_seeds_move_to_the_start_of_their_body() -> None:
    check_pass(
        HoistSeeds(),
        f'{_X}, c: R.Tensor((), "bool")',
        "a = R.negative(x)\ns = R.random.seed()\nb = R.random.uniform(s, shape=(3,))\nt = R.random.seed()\n"
        "@R.region\ndef yes(p: R.Tensor((3,))):\n    q = R.negative(p)\n    u = R.random.seed()\n"
        "    r = R.random.uniform(u, shape=(3,))\n    w = R.add(q, r)\n    return w\n"
        "@R.region\ndef no(p: R.Tensor((3,))):\n    return p\n"
        "e = R.if_(c, x, regions=[yes, no])\nd = R.random.uniform(t, shape=(3,))\nreturn a, b, d, e",
        "s = R.random.seed()\nt = R.random.seed()\na = R.negative(x)\nb = R.random.uniform(s, shape=(3,))\n"
        "@R.region\ndef yes(p: R.Tensor((3,))):\n    u = R.random.seed()\n    q = R.negative(p)\n"
        "    r = R.random.uniform(u, shape=(3,))\n    w = R.add(q, r)\n    return w\n"
        "@R.region\ndef no(p: R.Tensor((3,))):\n    return p\n"
        "e = R.if_(c, x, regions=[yes, no])\nd = R.random.uniform(t, shape=(3,))\nreturn a, b, d, e",
    )


def test_no_backend_draws_seeds_and_no_region_ends_at_them(fake_backend: type[FakeBackend]) -> None:
    """The ops before and after a seed share a region, and random numbers of a seed may be a backend's."""
    body = (
        "a = R.negative(x)\ns = R.random.seed()\nb = R.random.uniform(s, shape=(3,))\nc = R.add(a, b)\n"
        "t = R.random.seed()\nd = R.random.normal(t, shape=(3,))\ne = R.add(c, d)\nreturn e"
    )
    executable = byoc_core.build(parse_main(_X, body), [fake_backend("aone", None)])
    rows = [(row["op"], row["outcome"]) for row in executable.report_data["ops"]]
    assert [place for op, place in rows if op == "random.seed"] == ["host", "host"]
    assert {place for op, place in rows if op != "random.seed"} == {"aone"}
    assert len([region for region in executable.report_data["regions"] if region["backend"] == "aone"]) == 1
    refusal = next(row for row in executable.report_data["ops"] if row["op"] == "random.seed")
    assert "gives other results in each run" in str(refusal)
    run = byoc_core.VirtualMachine(executable)["main"]
    x = np.zeros(3, np.float32)
    assert (np.asarray(run(x)) != np.asarray(run(x))).any()
