"""The laws of values carried by a loop with sizes changing from round to round, and of branches with other sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core import parse
from byoc_core.errors import ExecutionError, IRTypeError, VerifyError
from byoc_core.ir import verify
from byoc_core.ops import default_ops
from byoc_core.transform import InlineCalls, evaluate_function

ORACLES = {"as_dynamic": "the operands themselves"}

GROWING = """
def main(t: R.Tensor((), "int64"), x: R.Tensor(("n",)), y: R.Tensor(("n",)), z: R.Tensor(("m",))):
    def step(i: R.Tensor((), "int64"), p: R.Tensor(("s",)), q: R.Tensor(("s",)), r: R.Tensor(("m",))):
        a = R.concat(p, p, axis=0)
        b = R.concat(q, q, axis=0)
        return R.const(True, "bool"), a, b, r
    u, v, w = R.loop(t, R.const(True, "bool"), x, y, z, regions=[step])
    k = R.add(u, v)
    return k
"""


def test_values_carried_by_a_loop_may_change_sizes() -> None:
    module = verify(parse(GROWING))
    assert [str(result.type) for result in module["main"].bindings[0].results] == [
        'R.Tensor(("s",), "float32")',
        'R.Tensor(("s",), "float32")',
        'R.Tensor(("m",), "float32")',
    ]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            'y: R.Tensor(("n",))',
            'y: R.Tensor(("m",))',
            (
                "op `loop`: parameter `q` of region `step` has another type; "
                'got R.Tensor(("m",), "float32"), expected R.Tensor(("n",), "float32")'
            ),
        ),
        (
            'y: R.Tensor(("n",))',
            'y: R.Tensor(("n",), "int8")',
            (
                "op `loop`: parameter `q` of region `step` has another type; "
                'got R.Tensor(("n",), "int8"), expected R.Tensor(("n",), "float32")'
            ),
        ),
        (
            "b = R.concat(q, q, axis=0)",
            "b = R.concat(q, q, q, axis=0)",
            (
                "op `loop`: region `step` does not return the condition and the carried values; "
                'got R.Tensor((), "bool"), R.Tensor(("2*s",), "float32"), R.Tensor(("3*s",), "float32"), '
                'R.Tensor(("m",), "float32"), '
                'expected R.Tensor((), "bool"), R.Tensor(("2*s",), "float32"), R.Tensor(("2*s",), "float32"), '
                'R.Tensor(("m",), "float32")'
            ),
        ),
        (
            "a, b, r",
            "a, b, p",
            (
                "op `loop`: region `step` does not return the condition and the carried values; "
                'got R.Tensor((), "bool"), R.Tensor(("2*s",), "float32"), R.Tensor(("2*s",), "float32"), '
                'R.Tensor(("s",), "float32"), '
                'expected R.Tensor((), "bool"), R.Tensor(("2*s",), "float32"), R.Tensor(("2*s",), "float32"), '
                'R.Tensor(("m",), "float32")'
            ),
        ),
    ],
)
def test_sizes_that_rounds_change_are_typed(old: str, new: str, text: str) -> None:
    assert GROWING.count(old) == 1
    with pytest.raises(IRTypeError) as caught:
        parse(GROWING.replace(old, new))
    assert str(caught.value).split("\n")[0] == text


def test_a_size_that_rounds_change_is_new() -> None:
    known = GROWING.replace('z: R.Tensor(("m",))):', 'z: R.Tensor(("m",)), o: R.Tensor(("s",))):')
    with pytest.raises(VerifyError, match="introduces the known size s again"):
        verify(parse(known))


def test_a_function_with_such_a_loop_is_inlined_twice() -> None:
    grow = GROWING.replace("def main(", "def grow(").replace(
        "return k", "total = R.sum(k, axis=(0,))\n    return total"
    )
    module = parse(
        grow
        + """
def main(t: R.Tensor((), "int64"), x: R.Tensor(("p",)), z: R.Tensor(("m",))):
    a = grow(t, x, x, z)
    b = grow(t, z, z, x)
    c = R.add(a, b)
    return c
"""
    )
    inlined = verify(InlineCalls()(module))
    assert [binding.op.name for binding in inlined["main"].bindings] == [*(["loop", "add", "sum"] * 2), "add"]
    inputs = [np.array(2), np.arange(3, dtype=np.float32), np.ones(1, np.float32)]
    for tried in (module, inlined):
        assert evaluate_function(tried, "main", inputs)[0] == 8 * 3 + 8


@pytest.mark.parametrize("kernel", ["as_dynamic"])
def test_tensors_keep_their_elements(kernel: str) -> None:
    compute = default_ops()[kernel].kernel
    assert compute is not None
    x, y = np.arange(6).reshape(2, 3), np.ones((3, 4), np.float32)
    given = compute(x, y, axes=(1, 0))
    assert isinstance(given, tuple)
    operands: list[Any] = [x, y]
    for result, operand in zip(given, operands, strict=True):
        np.testing.assert_array_equal(result, operand)
        assert result.dtype == operand.dtype
        assert not np.shares_memory(result, operand)


def test_a_common_size_is_checked_in_the_call() -> None:
    module = parse("""
def main(x: R.Tensor(("n", 2)), y: R.Tensor((2, "m"))):
    a, b = R.as_dynamic(x, y, axes=(0, 1), out_types=[R.Tensor(("k", 2)), R.Tensor((2, "k"))])
    return a, b
""")
    verify(module)
    with pytest.raises(ExecutionError, match="has tensors of different sizes; got 3, 4"):
        evaluate_function(module, "main", [np.zeros((3, 2), np.float32), np.zeros((2, 4), np.float32)])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            'R.as_dynamic(x, axes=(0, 1), out_types=[R.Tensor(("k", 2))])',
            "needs an axis for each tensor; got 2, expected 1",
        ),
        (
            'R.as_dynamic(x, axes=(2,), out_types=[R.Tensor(("k", 2))])',
            "has no such axis; got 2, expected 0 to 1",
        ),
    ],
)
def test_axes_are_checked(call: str, text: str) -> None:
    with pytest.raises(IRTypeError) as caught:
        parse(f'def main(x: R.Tensor(("n", 2))):\n    a = {call}\n    return a')
    assert text in str(caught.value)
