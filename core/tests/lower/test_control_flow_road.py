"""Branches and loops in all stages: early exit, no rounds, nesting, and permitted results of regions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine, build, parse
from byoc_core.errors import CodegenError
from byoc_core.ir import IRModule, verify
from byoc_core.runtime.module import NDArray
from byoc_core.transform import evaluate_function

PARAMS = 'c: R.Tensor((), "bool"), t: R.Tensor((), "int64"), x: R.Tensor(("n",), "int64")'


def main(body: str, params: str = PARAMS) -> IRModule:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return verify(parse(f"class M:\n    @R.function\n    def main({params}):\n{lines}\n"))


def run(module: IRModule, *inputs: NDArray | np.generic) -> list[Any]:
    """Return the machine's results after checks: equal to the interpreter's bit for bit, in separate arrays."""
    returned = VirtualMachine(build(module, []))["main"](*inputs)
    results = list(returned) if isinstance(returned, tuple) else [returned]
    for have, want in zip(results, evaluate_function(module, "main", inputs), strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_array_equal(have, want)
    for index, result in enumerate(results):
        assert not any(np.shares_memory(result, other) for other in (*results[:index], *inputs))
    return results


COLLATZ = """
@R.region
def outer(i: R.Tensor((), "int64"), start: R.Tensor((), "int64"), total: R.Tensor((), "int64")):
    @R.region
    def inner(j: R.Tensor((), "int64"), v: R.Tensor((), "int64"), steps: R.Tensor((), "int64")):
        half = R.divide(v, R.const(2, "int64"))
        even = R.multiply(half, R.const(2, "int64"))
        is_odd = R.less(even, v)
        triple = R.multiply(v, R.const(3, "int64"))
        following = R.add(triple, R.const(1, "int64"))
        w = R.where(is_odd, following, half)
        more = R.greater(w, R.const(1, "int64"))
        counted = R.add(steps, R.const(1, "int64"))
        return more, w, counted
    going = R.greater(start, R.const(1, "int64"))
    _, count = R.loop(R.const(1000, "int64"), going, start, R.const(0, "int64"), regions=[inner])
    both = R.add(total, count)
    following = R.add(start, R.const(1, "int64"))
    return R.const(True, "bool"), following, both
last, total = R.loop(t, c, R.const(1, "int64"), R.const(0, "int64"), regions=[outer])
return total, last
"""


def collatz(number: int) -> int:
    """Return the number of steps from a number to 1."""
    return 0 if number <= 1 else 1 + collatz(3 * number + 1 if number % 2 else number // 2)


@pytest.mark.parametrize("trips", [-1, 0, 1, 2, 12])
@pytest.mark.parametrize("flag", [True, False])
def test_nested_loops_end_early_or_never_begin(trips: int, flag: bool) -> None:
    rounds = max(trips, 0) if flag else 0
    total, last = run(main(COLLATZ), np.array(flag), np.int64(trips), np.zeros(2, np.int64))
    assert total == sum(map(collatz, range(1, rounds + 1)))
    assert last == rounds + 1


ANY = """
@R.region
def then(y: R.Tensor(("n",), "int64"), d: R.Tensor((), "bool")):
    z = R.add(y, y)
    return {then}
@R.region
def otherwise(y: R.Tensor(("n",), "int64"), d: R.Tensor((), "bool")):
    w = R.multiply(y, y)
    return {otherwise}
a, b = R.if_(c, x, c, regions=[then, otherwise])
return {results}
"""


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize(
    ("then", "otherwise", "results"),
    [
        ("z, z", "w, w", "a, b"),
        ("z, y", "y, w", "b, a, a"),
        ("y, y", "y, y", "a, b, x"),
        ("y, z", "w, y", "x, a, x"),
    ],
)
def test_a_region_returns_values_twice_and_parameters(flag: bool, then: str, otherwise: str, results: str) -> None:
    module = main(ANY.format(then=then, otherwise=otherwise, results=results))
    for size in (0, 3):
        run(module, np.array(flag), np.int64(0), np.arange(size))


CONSTANT = 'R.const([3, 5], "int64")'


@pytest.mark.parametrize("flag", [True, False])
def test_regions_return_constants(flag: bool) -> None:
    module = main(
        f"""
@R.region
def then(y: R.Tensor((), "int64")):
    return {CONSTANT}, y, {CONSTANT}
@R.region
def otherwise(y: R.Tensor((), "int64")):
    return R.const([7, 9], "int64"), R.const(4, "int64"), {CONSTANT}
a, b, d = R.if_(c, t, regions=[then, otherwise])
@R.region
def body(i: R.Tensor((), "int64"), y: R.Tensor((2,), "int64"), z: R.Tensor((2,), "int64")):
    return R.const(False, "bool"), {CONSTANT}, y
e, f = R.loop(t, c, a, d, regions=[body])
return a, b, d, e, f, {CONSTANT}
"""
    )
    for trips in (0, 3):
        a, b, _, e, f, constant = run(module, np.array(flag), np.int64(trips), np.zeros(1, np.int64))
        assert (a.tolist(), int(b)) == (([3, 5], trips) if flag else ([7, 9], 4))
        assert e.tolist() == ([3, 5] if flag else [7, 9])
        assert f.tolist() == [3, 5]
        assert constant.tolist() == [3, 5]


def test_a_learnt_size_is_another_one_in_every_round() -> None:
    """Round ``i`` counts the elements greater than ``i``, and adds up the counts."""
    module = main(
        """
@R.region
def body(i: R.Tensor((), "int64"), y: R.Tensor(("n",), "int64"), total: R.Tensor((), "int64")):
    chosen = R.greater(y, i)
    kept = R.compress(y, chosen, axis=0, out_types=[R.Tensor(("k",), "int64")])
    ones = R.broadcast_to(R.const(1, "int64"), shape=("k",))
    count = R.sum(ones, axis=(0,))
    more = R.greater(count, R.const(0, "int64"))
    both = R.add(total, count)
    return more, y, both
_, total = R.loop(t, c, x, R.const(0, "int64"), regions=[body])
return total
"""
    )
    for values in ([5, 1, 3], [], [0, -2]):
        (total,) = run(module, np.array(True), np.int64(50), np.array(values, np.int64))
        assert total == sum(value for value in values if value > 0)


def test_what_both_branches_learn_for_themselves_may_be_learnt_again() -> None:
    branch = """
@R.region
def {name}(y: R.Tensor(("n",), "int64")):
    chosen = R.{op}(y, R.const(2, "int64"))
    kept = R.compress(y, chosen, axis=0, out_types=[R.Tensor(("k",), "int64")])
    total = R.sum(kept, axis=(0,))
    return total
"""
    rest = """
a = R.if_(c, x, regions=[then, otherwise])
chosen = R.less(x, R.const(4, "int64"))
b = R.compress(x, chosen, axis=0, out_types=[R.Tensor(("k",), "int64")])
d = R.add(b, a)
return d
"""
    module = main(branch.format(name="then", op="greater") + branch.format(name="otherwise", op="less") + rest)
    for flag, total in ((True, 7), (False, 1)):
        (d,) = run(module, np.array(flag), np.int64(0), np.arange(5))
        assert d.tolist() == [total + number for number in range(4)]


def test_branches_that_learn_the_size_of_their_result() -> None:
    branch = """
@R.region
def {name}(y: R.Tensor(("n",), "int64")):
    chosen = R.{op}(y, R.const(2, "int64"))
    kept = R.compress(y, chosen, axis=0, out_types=[R.Tensor(("k",), "int64")])
    return kept
"""
    rest = "a = R.if_(c, x, regions=[then, otherwise])\nb = R.broadcast_to(a, shape=(2, 'k'))\nreturn a, b, a"
    module = main(branch.format(name="then", op="greater") + branch.format(name="otherwise", op="less") + rest)
    for flag, expected in ((True, [3, 4]), (False, [0, 1])):
        a, b, _ = run(module, np.array(flag), np.int64(0), np.arange(5))
        assert a.tolist() == expected
        assert b.tolist() == [expected] * 2


@pytest.mark.parametrize(
    ("params", "unknown"),
    [
        ('x: R.Tensor(("m*n",), "float32")', "m, n"),
        ('x: R.Tensor(("m*n",), "float32"), y: R.Tensor(("n",), "float32")', "m"),
        ('x: R.Tensor(("m+n",), "float32")', "m, n"),
    ],
)
def test_parameters_that_do_not_tell_their_sizes(params: str, unknown: str) -> None:
    module = main("a = R.nn.relu(x)\nreturn a", params)
    with pytest.raises(CodegenError) as caught:
        build(module, [])
    shape = 'R.Tensor(("m+n",), "float32")' if "+" in params else 'R.Tensor(("m*n",), "float32")'
    assert str(caught.value) == (
        f"function `main`: the size of `a` is unknown at the allocation: no shape determines {unknown}; got {shape}. "
        "A shape determines a size by an axis with a single unknown symbol, such as `n` or `2*n+1`."
    )
