"""The estimate of an arena: live ranges, views, places taken over, regions, symbolic sizes."""

from __future__ import annotations

import byoc_core
import pytest
from byoc_core.ir import Function, FunctionBuilder, tensor
from byoc_core.lower.estimate_arena import ArenaEstimate, count_nbytes, estimate_arena
from byoc_core.ops import default_ops
from hypothesis import given
from hypothesis import strategies as st

from core.tests.ir_text import parse_main
from core.tests.lower.test_control_flow_property import Maker

ROW = 4 * 64


def estimate(body: str, params: str = "x: R.Tensor((64,))", **sizes: int) -> ArenaEstimate:
    return estimate_arena(parse_main(params, body)["main"], sizes)


@pytest.mark.parametrize(
    ("body", "arena", "total"),
    [
        ("y = R.cumsum(x, axis=0)\nreturn y", 0, 0),  # the caller's
        ("a = R.cumsum(x, axis=0)\ny = R.cumsum(a, axis=0)\nreturn y", ROW, ROW),
        ("a = R.cumsum(x, axis=0)\nb = R.cumsum(a, axis=0)\ny = R.cumsum(b, axis=0)\nreturn y", 2 * ROW, 2 * ROW),
        # The third value takes the memory of the first.
        (
            "a = R.cumsum(x, axis=0)\nb = R.cumsum(a, axis=0)\nc = R.cumsum(b, axis=0)\nd = R.sum(c)\nreturn d",
            2 * ROW,
            3 * ROW,
        ),
        # An elementwise op takes the place of its operand, unless another op reads the operand later.
        ("a = R.cumsum(x, axis=0)\nb = R.exp(a)\ny = R.cumsum(b, axis=0)\nreturn y", ROW, ROW),
        (
            "a = R.cumsum(x, axis=0)\nb = R.exp(a)\nc = R.add(a, b)\ny = R.cumsum(c, axis=0)\nreturn y",
            2 * ROW,
            2 * ROW,
        ),
        # Another dtype has another place.
        ("a = R.cumsum(x, axis=0)\nb = R.cast(a, dtype='float64')\ny = R.cumsum(b, axis=0)\nreturn y", 768, 768),
        # The operand of the last elementwise op may lie in the result.
        ("a = R.cumsum(x, axis=0)\ny = R.exp(a)\nreturn y", 0, 0),
        # Views share the memory of the base, and keep the base alive.
        (
            """
            a = R.cumsum(x, axis=0)
            b = R.reshape(a, shape=(8, 8))
            c = R.permute_dims(b)
            d = R.cumsum(x, axis=0)
            e = R.sum(d)
            f = R.add(c, e)
            y = R.cumsum(f, axis=0)
            return y
            """,
            2 * ROW + 4,
            3 * ROW + 4,
        ),
        # A joined value has memory of its own.
        (
            "a = R.cumsum(x, axis=0)\nb = R.cumsum(a, axis=0)\nc = R.concat(a, b, axis=0)\nd = R.sum(c)\nreturn d",
            4 * ROW,
            4 * ROW,
        ),
    ],
)
def test_live_ranges(body: str, arena: int, total: int) -> None:
    found = estimate(body)
    assert (found.arena_nbytes, found.total_nbytes) == (arena, total)


@pytest.mark.parametrize("call", ["R.nn.bias_add(a, w)", "R.nn.softmax(a)"])
def test_kernels_in_place(call: str) -> None:
    body = f"a = R.cumsum(x, axis=0)\nb = {call}\ny = R.cumsum(b, axis=0)\nreturn y"
    found = estimate(body, "x: R.Tensor((8, 8)), w: R.Tensor((8,))")
    assert found.arena_nbytes == ROW


def test_the_op_of_the_peak_is_named() -> None:
    found = estimate("a = R.sum(x)\nb = R.cumsum(x, axis=0)\nc = R.add(a, b)\ny = R.cumsum(c, axis=0)\nreturn y")
    assert found.peak_nbytes == ROW + 4
    assert found.peak_binding is not None
    assert found.peak_binding.op.name == "cumsum"
    assert estimate("y = R.exp(x)\nreturn y") == ArenaEstimate()


def test_symbolic_sizes_count_as_given_or_as_1() -> None:
    body = "a = R.cumsum(x, axis=0)\ny = R.cumsum(a, axis=0)\nreturn y"
    params = 'x: R.Tensor(("n", "m"))'
    assert [estimate(body, params, **sizes).arena_nbytes for sizes in ({}, {"n": 8}, {"n": 8, "m": 3})] == [4, 32, 96]


def test_unusable_sizes_count_as_no_bytes() -> None:
    n = byoc_core.dims.symbol("n")
    assert count_nbytes([tensor((n - 4, 2))], {"n": 2}) == (0, 0)
    assert count_nbytes([tensor((8 // n,))], {"n": 0}) == (0, 0)
    assert count_nbytes([tensor(None), tensor((3,))], {}) == (12, 1)


def test_ops_of_the_compiler_take_no_place() -> None:
    main = parse_main(
        "x: R.Tensor((64,))",
        "a = R.cumsum(x, axis=0)\nb = R.cumsum(a, axis=0)\nc = R.add(a, b)\ny = R.cumsum(c, axis=0)\nreturn y",
    )["main"]
    (a, *_) = (binding.results[0] for binding in main.bindings)
    assert estimate_arena(main, {}, {a}).total_nbytes == ROW


def test_a_region_adds_its_arena() -> None:
    def region(name: str, num_ops: int) -> Function:
        builder = FunctionBuilder(name, ops=default_ops())
        value = builder.param("p", tensor((64,)))
        for _ in range(num_ops):
            (value,) = builder.bind("cumsum", [value], {"axis": 0}).results
        return builder.finish(value)

    builder = FunctionBuilder("main", ops=default_ops())
    flag, x = builder.param("flag", tensor((), "bool")), builder.param("x", tensor((64,)))
    (before,) = builder.bind("cumsum", [x], {"axis": 0}).results
    (chosen,) = builder.bind("if", [flag, before], {}, regions=[region("short", 2), region("long", 4)]).results
    main = builder.finish(*builder.bind("cumsum", [chosen], {"axis": 0}).results)
    # The operand, the result, and two values inside the longer branch; another value inside takes the first place.
    assert estimate_arena(main, {}).arena_nbytes == 4 * ROW


@given(st.data())
def test_arenas_lie_between_the_peak_and_the_sum(data: st.DataObject) -> None:
    found = estimate_arena(Maker(data.draw).module()["main"], {"n": 5})
    assert 0 <= found.peak_nbytes <= found.arena_nbytes
    assert found.arena_nbytes <= found.total_nbytes + 64 * 200
    assert (found.peak_binding is None) is (found.peak_nbytes == 0)


def test_values_of_unknown_rank_are_told() -> None:
    params = 'x: R.Tensor(None, "float32")'
    assert estimate("a = R.tanh(x)\nb = R.cast(a, dtype='float64')\nreturn b", params) == ArenaEstimate(num_uncounted=1)
    assert estimate("a = R.tanh(x)\nreturn a", params) == ArenaEstimate()
