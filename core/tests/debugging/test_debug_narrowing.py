"""The op at fault, found inside a region."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from byoc_core import debug_model, parse
from byoc_core.debugging import DebugReport

CHAIN = """
class M:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float32")):
        a = R.add(x, y)
        b = R.multiply(a, y)
        c = R.exp(b)
        d = R.subtract(c, x)
        e = R.nn.relu(d)
        return e
"""
X, Y = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def debug(backend: object, text: str = CHAIN, **options: object) -> DebugReport:
    return debug_model(parse(text), [backend], [X, Y], options={"faulty": options})


@pytest.mark.parametrize("op", ["add", "multiply", "exp", "subtract", "nn.relu"])
@pytest.mark.parametrize("fault", ["lane", "nan"])
def test_the_first_wrong_value_names_the_op(faulty: Callable[..., object], fault: str, op: str) -> None:
    (case,) = debug(faulty(), fault=fault, op=op).cases
    assert case.guilt is not None
    assert case.guilt.ops == (op,)
    assert case.guilt.how == "the value of this op is the first diverging value"


def test_the_line_is_marked_in_the_printed_region(faulty: Callable[..., object]) -> None:
    (case,) = debug(faulty(), fault="lane", op="exp").cases
    assert str(case.guilt) == (
        "guilty: `exp` (`c`); the value of this op is the first diverging value\n"
        '  def faulty_main_0(x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float32")) -> '
        'R.Tensor((3, 4), "float32"):\n'
        "      ...\n"
        '      R.func_attr({"Codegen": "faulty", "global_symbol": "faulty_main_0", "source": "main"})\n'
        "      a = R.add(x, y)\n"
        "      b = R.multiply(a, y)\n"
        ">     c = R.exp(b)\n"
        "      d = R.subtract(c, x)\n"
        "      e = R.nn.relu(d)\n"
        "      return e"
    )


@pytest.mark.parametrize("fault", ["raise", "compile-error"])
@pytest.mark.parametrize("op", ["add", "multiply", "exp", "subtract", "nn.relu"])
def test_a_region_that_fails_as_a_whole_is_cut(faulty: Callable[..., object], fault: str, op: str) -> None:
    (case,) = debug(faulty(), fault=fault, op=op).cases
    assert case.guilt is not None
    assert case.guilt.ops == (op,)
    length = ["add", "multiply", "exp", "subtract", "nn.relu"].index(op) + 1
    assert case.guilt.how == f"the first {length} ops diverge together, but not without the last op"


@pytest.mark.parametrize("op", ["add", "multiply", "exp", "subtract"])
def test_a_fault_that_needs_a_neighbour_is_found_by_cutting(faulty: Callable[..., object], op: str) -> None:
    """With the op's own value as a result the op is right: fused with the next op, wrong."""
    (case,) = debug(faulty(), fault="fused", op=op).cases
    assert case.guilt is not None
    following = {"add": "multiply", "multiply": "exp", "exp": "subtract", "subtract": "nn.relu"}
    assert case.guilt.ops == (following[op],)


def test_parts_that_the_backend_refuses_leave_several_ops(faulty: Callable[..., object]) -> None:
    (case,) = debug(faulty(), fault="raise", op="exp", min_ops=5).cases
    assert case.guilt is not None
    assert case.guilt.ops == ("add", "multiply", "exp", "subtract", "nn.relu")
    assert case.guilt.how == "the search ended early, because the backend refuses the first 2 ops alone"


def test_the_only_op_needs_no_search(faulty: Callable[..., object]) -> None:
    (case,) = debug(faulty("exp"), fault="raise").cases
    assert case.guilt is not None
    assert (case.guilt.ops, case.guilt.how) == (("exp",), "the region has no other op")


def test_chance_tells_nothing(faulty: Callable[..., object]) -> None:
    (case,) = debug(faulty(), fault="not-deterministic").cases
    assert case.guilt is None


def test_it_can_be_left_out(faulty: Callable[..., object]) -> None:
    options = {"faulty": {"fault": "lane", "op": "exp"}}
    (case,) = debug_model(parse(CHAIN), [faulty()], [X, Y], options=options, narrow=False).cases
    assert case.guilt is None
