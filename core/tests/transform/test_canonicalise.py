"""Removals, joins and swaps by ``Canonicalise``, and cases left alone."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.transform import Canonicalise, evaluate_function

from core.tests.ir_text import check_pass, check_unchanged, parse_main
from core.tests.transform.random_modules import check_same_bits

F32 = 'x: R.Tensor(("n", 4), "float32")'
I32 = 'x: R.Tensor((3,), "int32")'
BOOL = 'x: R.Tensor((3,), "bool")'
U8 = 'x: R.Tensor((3,), "uint8")'
BF16 = 'x: R.Tensor((3,), "bfloat16")'
TWO = 'c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")'

GONE = {
    "times one": (F32, 'y = R.multiply(x, R.const(1.0, "float32"))'),
    "one times": (F32, 'y = R.multiply(R.const([1.0, 1.0, 1.0, 1.0], "float32"), x)'),
    "over one": (F32, 'y = R.divide(x, R.const([1.0], "float32"))'),
    "minus zero": (F32, 'y = R.subtract(x, R.const(0.0, "float32"))'),
    "plus minus zero": (F32, 'y = R.add(R.const(-0.0, "float32"), x)'),
    "to the first power": (F32, 'y = R.power(x, R.const(1.0, "float32"))'),
    "integers plus zero": (I32, 'y = R.add(x, R.const(0, "int32"))'),
    "integers minus zero": (I32, 'y = R.subtract(x, R.const([0, 0, 0], "int32"))'),
    "bool and": (BOOL, 'y = R.logical_and(R.const(True, "bool"), x)'),
    "bool or": (BOOL, 'y = R.logical_or(x, R.const(False, "bool"))'),
    "bool multiply": (BOOL, 'y = R.multiply(x, R.const(True, "bool"))'),
    "bool with itself": (BOOL, "y = R.logical_or(x, x)"),
    "bfloat16": (BF16, 'y = R.multiply(x, R.const(1.0, "bfloat16"))'),
    "maximum with itself": (F32, "y = R.maximum(x, x)"),
    "double negation": (F32, "a = R.negative(x)\ny = R.negative(a)"),
    "double not": (BOOL, "a = R.logical_not(x)\ny = R.logical_not(a)"),
    "equal choices": (F32, 'y = R.where(R.const(True, "bool"), x, x)'),
    "constant choice": (F32, 'y = R.where(R.const(False, "bool"), R.const(5.0, "float32"), x)'),
    "cast": (F32, 'y = R.cast(x, dtype="float32")'),
    "cast there and back": (F32, 'a = R.cast(x, dtype="float64")\ny = R.cast(a, dtype="float32")'),
    "integers to floats and back": (I32, 'a = R.cast(x, dtype="float64")\ny = R.cast(a, dtype="int32")'),
    "reshape": (F32, 'y = R.reshape(x, shape=("n", 4))'),
    "reshape there and back": (F32, 'a = R.reshape(x, shape=("4*n",))\ny = R.reshape(a, shape=(-1, 4))'),
    "transpose": (F32, "y = R.permute_dims(x, axes=(0, -1))"),
    "transpose there and back": (F32, "a = R.permute_dims(x)\ny = R.permute_dims(a, axes=(1, 0))"),
    "broadcast": (F32, 'y = R.broadcast_to(x, shape=("n", 4))'),
    "slice of all": (F32, "y = R.strided_slice(x, axes=(1,), begin=(-9,), end=(4,), strides=(1,))"),
    "pad by nothing": (F32, "y = R.nn.pad(x, pad_width=(0, 0, 0, 0))"),
    "clip to everything": (F32, "y = R.clip(x)"),
    "maximum with the lowest": (F32, 'y = R.maximum(x, R.const(float("-inf"), "float32"))'),
    "minimum with the highest": (F32, 'y = R.minimum(x, R.const(float("inf"), "float32"))'),
    "integer maximum with the lowest": (I32, 'y = R.maximum(R.const(-2147483648, "int32"), x)'),
    "maximum of 64 bits with the lowest": (
        'x: R.Tensor((3,), "int64")',
        'y = R.maximum(x, R.const(-9223372036854775808, "int64"))',
    ),
    "minimum of unsigned 64 bits with the highest": (
        'x: R.Tensor((3,), "uint64")',
        'y = R.minimum(x, R.const(18446744073709551615, "uint64"))',
    ),
    "unsigned maximum with zero": (U8, 'y = R.maximum(x, R.const(0, "uint8"))'),
    "exclusive or": (BOOL, 'y = R.logical_xor(x, R.const(False, "bool"))'),
    "all bits": (I32, 'y = R.bitwise_and(x, R.const(-1, "int32"))'),
    "all bits of unsigned": (U8, 'y = R.bitwise_and(R.const(255, "uint8"), x)'),
    "no bits": (I32, 'y = R.bitwise_or(x, R.const(0, "int32"))'),
    "no other bits": (I32, 'y = R.bitwise_xor(x, R.const(0, "int32"))'),
    "shift by nothing": (I32, 'y = R.left_shift(x, R.const(0, "int32"))'),
    "double inversion": (I32, "a = R.bitwise_not(x)\ny = R.bitwise_not(a)"),
    "bits with themselves": (I32, "y = R.bitwise_or(x, x)"),
    "concat with nothing": (
        F32 + ', e: R.Tensor(("n", 0), "float32")',
        "a = R.concat(e, x, e, axis=-1)\ny = R.concat(a, axis=0)",
    ),
    "concat of one": (F32, "y = R.concat(x, axis=1)"),
    "split into one": (F32, "y = R.split(x, sections=(4,), axis=1)"),
}


@pytest.mark.parametrize("case", GONE)
def test_ops_that_change_nothing_go(case: str) -> None:
    params, body = GONE[case]
    reader = "logical_not" if params == BOOL else "abs"
    check_pass(Canonicalise(), params, f"{body}\nz = R.{reader}(y)\nreturn z, y", f"z = R.{reader}(x)\nreturn z, x")


JOINED = {
    "reshapes": (
        F32,
        'a = R.reshape(x, shape=(4, "n"))\ny = R.reshape(a, shape=(-1,))',
        'y = R.reshape(x, shape=("4*n",))',
    ),
    "transposes": (
        'x: R.Tensor((2, 3, 4), "float32")',
        "a = R.permute_dims(x, axes=(2, 0, 1))\ny = R.permute_dims(a, axes=(1, 0, 2))",
        "y = R.permute_dims(x, axes=(0, 2, 1))",
    ),
    "pads": (
        F32,
        "a = R.nn.pad(x, pad_width=(1, 0, 0, 2))\ny = R.nn.pad(a, pad_width=(0, 3, 1, 0))",
        "y = R.nn.pad(x, pad_width=(1, 3, 1, 2))",
    ),
    "casts": (
        'x: R.Tensor((3,), "int8")',
        'a = R.cast(x, dtype="int32")\ny = R.cast(a, dtype="int16")',
        'y = R.cast(x, dtype="int16")',
    ),
    "casts from bool": (
        BOOL,
        'a = R.cast(x, dtype="float16")\ny = R.cast(a, dtype="int64")',
        'y = R.cast(x, dtype="int64")',
    ),
    "abs of negative": (F32, "a = R.negative(x)\ny = R.abs(a)", "y = R.abs(x)"),
    "abs of abs": (F32, "y = R.abs(x)\nb = R.abs(y)\nc = R.abs(b)\nd = R.exp(c)", "y = R.abs(x)\nd = R.exp(y)"),
    "relu of relu": (F32, "y = R.nn.relu(x)\nb = R.nn.relu(y)\nd = R.exp(b)", "y = R.nn.relu(x)\nd = R.exp(y)"),
    "constant to the right": (
        F32,
        'y = R.add(R.const(2.0, "float32"), x)',
        'y = R.add(x, R.const(2.0, "float32"))',
    ),
    "constant of integer maximum": (
        I32,
        'y = R.maximum(R.const(2, "int32"), x)',
        'y = R.maximum(x, R.const(2, "int32"))',
    ),
    "floor of floor": (F32, "y = R.floor(x)\nb = R.floor(y)\nd = R.exp(b)", "y = R.floor(x)\nd = R.exp(y)"),
    "broadcasts": (
        F32,
        'a = R.broadcast_to(x, shape=(2, "n", 4))\ny = R.broadcast_to(a, shape=(3, 2, "n", 4))',
        'y = R.broadcast_to(x, shape=(3, 2, "n", 4))',
    ),
    "a broadcast before an op that broadcasts": (
        F32 + ', c: R.Tensor((4,), "float32")',
        'a = R.broadcast_to(c, shape=("n", 4))\ny = R.multiply(a, x)',
        "y = R.multiply(c, x)",
    ),
    "one of two broadcasts": (
        "c: R.Tensor((4,)), x: R.Tensor((3, 1))",
        "a = R.broadcast_to(c, shape=(3, 4))\nb = R.broadcast_to(x, shape=(3, 4))\ny = R.power(a, b)",
        "b = R.broadcast_to(x, shape=(3, 4))\ny = R.power(c, b)",
    ),
    "a broadcast choice": (
        'c: R.Tensor((), "bool"), x: R.Tensor((3,)), y: R.Tensor((3,))',
        "a = R.broadcast_to(c, shape=(3,))\nz = R.where(a, x, y)",
        "z = R.where(c, x, y)",
    ),
    "plus negative": (F32, "a = R.negative(x)\nb = R.tanh(x)\ny = R.add(a, b)", "b = R.tanh(x)\ny = R.subtract(b, x)"),
    "minus negative": (
        F32,
        "a = R.negative(x)\nb = R.tanh(x)\ny = R.subtract(b, a)",
        "b = R.tanh(x)\ny = R.add(b, x)",
    ),
    "over powers of two": (
        F32,
        'y = R.divide(x, R.const([2.0, -0.5, 1024.0, 1.0], "float32"))',
        'y = R.multiply(x, R.const([0.5, -2.0, 0.0009765625, 1.0], "float32"))',
    ),
    "sums of integers": (
        I32,
        'a = R.add(x, R.const(2147483647, "int32"))\ny = R.add(R.const([1, 2, 3], "int32"), a)',
        'y = R.add(x, R.const([-2147483648, -2147483647, -2147483646], "int32"))',
    ),
    "products of integers": (
        U8,
        'a = R.multiply(x, R.const(100, "uint8"))\ny = R.multiply(a, R.const(5, "uint8"))',
        'y = R.multiply(x, R.const(244, "uint8"))',
    ),
    "difference of equal integers": (
        I32,
        "y = R.subtract(x, x)",
        'y = R.broadcast_to(R.const(0, "int32"), shape=(3,))',
    ),
    "no integers": (
        I32,
        'y = R.multiply(x, R.const([0, 0, 0], "int32"))',
        'y = R.broadcast_to(R.const(0, "int32"), shape=(3,))',
    ),
    "a long chain": (
        F32,
        (
            'a = R.multiply(x, R.const(1.0, "float32"))\nb = R.negative(a)\nc = R.reshape(b, shape=("4*n",))\n'
            'd = R.reshape(c, shape=("n", 4))\ne = R.negative(d)\ny = R.exp(e)'
        ),
        "y = R.exp(x)",
    ),
}


@pytest.mark.parametrize("case", JOINED)
def test_chains_become_one(case: str) -> None:
    params, before, after = JOINED[case]
    last = after.rpartition("\n")[2].partition(" ")[0]
    check_pass(Canonicalise(), params, f"{before}\nreturn {last}", f"{after}\nreturn {last}")


KEPT = {
    "plus zero": (F32, 'y = R.add(x, R.const(0.0, "float32"))'),
    "minus minus zero": (F32, 'y = R.subtract(x, R.const(-0.0, "float32"))'),
    "one over": (F32, 'y = R.divide(R.const(1.0, "float32"), x)'),
    "times zero": (F32, 'y = R.multiply(x, R.const(0.0, "float32"))'),
    "almost ones": (F32, 'y = R.multiply(x, R.const([1.0, 1.0, 1.0, 2.0], "float32"))'),
    "broadcast by one": (F32, 'y = R.multiply(x, R.const([[[1.0]]], "float32"))'),
    "widening by ones": ('x: R.Tensor((1,), "float32")', 'y = R.multiply(x, R.const([1.0, 1.0], "float32"))'),
    "no ones at all": ('x: R.Tensor((0,), "float32")', "y = R.exp(x)"),
    "maximum of floats": (F32, 'y = R.maximum(R.const(0.0, "float32"), x)'),
    "cast that rounds": (F32, 'a = R.cast(x, dtype="float16")\ny = R.cast(a, dtype="float32")'),
    "cast of integers that rounds": (I32, 'a = R.cast(x, dtype="float32")\ny = R.cast(a, dtype="int32")'),
    "cast out of range": (
        'x: R.Tensor((3,), "int16")',
        'a = R.cast(x, dtype="float32")\ny = R.cast(a, dtype="int8")',
    ),
    "cast to unsigned": ('x: R.Tensor((3,), "int8")', 'a = R.cast(x, dtype="uint16")\ny = R.cast(a, dtype="int32")'),
    "reshape that checks": (F32, 'a = R.reshape(x, shape=("n", "n"))\ny = R.reshape(a, shape=("n*n",))'),
    "maximum with the lowest finite number": (F32, 'y = R.maximum(x, R.const(-3.4028234663852886e+38, "float32"))'),
    "not all bits": (U8, 'y = R.bitwise_and(x, R.const(127, "uint8"))'),
    "difference of equal floats": (F32, "y = R.subtract(x, x)"),
    "quotient of equals": (I32, "y = R.divide(x, x)"),
    "quotient of equal floats": (F32, "y = R.divide(x, x)"),
    "zero over": (F32, 'y = R.divide(R.const(0.0, "float32"), x)'),
    "over another number": (F32, 'y = R.divide(x, R.const(3.0, "float32"))'),
    "over zero": (F32, 'y = R.divide(x, R.const(0.0, "float32"))'),
    "over what has no normal inverse": (F32, 'y = R.divide(x, R.const(1.7014118346046923e+38, "float32"))'),
    "integers over a power of two": (I32, 'y = R.divide(x, R.const(2, "int32"))'),
    "sums of floats": (
        F32,
        'a = R.add(x, R.const(1.0, "float32"))\ny = R.add(a, R.const(2.0, "float32"))',
    ),
    "sums that would grow": (
        'x: R.Tensor((2, 3), "int32")',
        'a = R.add(x, R.const([1, 2, 3], "int32"))\ny = R.add(a, R.const([[1], [2]], "int32"))',
    ),
    "exponential of the logarithm": (F32, "a = R.log(x)\ny = R.exp(a)"),
    "root of the square": (F32, "a = R.multiply(x, x)\ny = R.sqrt(a)"),
    "tests of numbers": (F32, "y = R.isnan(x)"),
    "a broadcast that checks": (
        F32,
        'a = R.broadcast_to(x, shape=("m", 4))\ny = R.broadcast_to(a, shape=(2, "m", 4))',
    ),
    "a broadcast that makes the shape": (
        "x: R.Tensor((3, 1)), c: R.Tensor((4,))",
        "a = R.broadcast_to(c, shape=(3, 4))\ny = R.add(x, a)",
    ),
    "concat of nothing": ('x: R.Tensor((2, 0), "float32")', "y = R.concat(x, x, axis=1)"),
    "slice backwards": (F32, "y = R.strided_slice(x, axes=(1,), begin=(3,), end=(-9,), strides=(-1,))"),
    "pads of two values": (
        F32,
        "a = R.nn.pad(x, pad_width=(1, 0, 0, 2))\ny = R.nn.pad(a, pad_width=(0, 3, 1, 0), pad_value=-0.0)",
    ),
    "choice that widens": (
        'c: R.Tensor((3,), "bool"), x: R.Tensor((1,), "float32")',
        "y = R.where(c, x, x)",
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_changes_something_stays(case: str) -> None:
    params, body = KEPT[case]
    check_unchanged(Canonicalise(), params, f"{body}\nreturn y")


@pytest.mark.parametrize("op", ["add", "subtract"])
@pytest.mark.parametrize("zero", ["0.0", "-0.0"])
def test_signs_of_zeros_may_be_given_up(op: str, zero: str) -> None:
    module = parse_main(F32, f'y = R.{op}(x, R.const({zero}, "float32"))\nreturn y')
    after = Canonicalise(keep_signed_zeros=False)(module)
    assert not after["main"].bindings
    x = np.array([[-0.0, 0.0, np.nan, np.inf]], np.float32)
    np.testing.assert_array_equal(evaluate_function(after, "main", [x])[0], evaluate_function(module, "main", [x])[0])


def test_the_comparison_of_bits_sees_the_sign_of_a_zero() -> None:
    module = parse_main(F32, 'y = R.add(x, R.const(0.0, "float32"))\nreturn y')
    x = np.array([[-0.0, 0.0, 1.0, 2.0]], np.float32)
    check_same_bits(module, Canonicalise()(module), [x])
    with pytest.raises(AssertionError):
        check_same_bits(module, Canonicalise(keep_signed_zeros=False)(module), [x])


def test_a_removed_value_leaves_what_others_read() -> None:
    check_pass(
        Canonicalise(),
        F32,
        "a = R.negative(x)\nb = R.negative(a)\nc = R.multiply(a, b)\nreturn c",
        "a = R.negative(x)\nc = R.multiply(a, x)\nreturn c",
    )


def test_regions_are_simplified() -> None:
    region = "@R.region\ndef {name}(p: R.Tensor((3,))):\n    {body}\n"
    before = region.format(name="yes", body='q = R.multiply(p, R.const(1.0, "float32"))\n    return q')
    before += region.format(name="no", body="q = R.exp(p)\n    return q")
    after = region.format(name="yes", body="return p") + region.format(name="no", body="q = R.exp(p)\n    return q")
    call = "y = R.if_(c, x, regions=[yes, no])\nz = R.add(y, R.const({zero}, 'float32'))\nreturn {result}"
    check_pass(
        Canonicalise(),
        TWO,
        before + call.format(zero="-0.0", result="z"),
        after + "y = R.if_(c, x, regions=[yes, no])\nreturn y",
    )


def test_claimed_and_annotated_ops_are_left_alone() -> None:
    body = 'R.func_attr({"Codegen": "some", "global_symbol": "f"})\na = R.negative(x)\ny = R.negative(a)\nreturn y'
    check_unchanged(Canonicalise(), F32, body)
    check_unchanged(Canonicalise(), F32, 'a = R.negative(x)\ny = R.negative(a, codegen="some")\nreturn y')


def test_impure_calls_stay() -> None:
    body = 'a = R.call_packed("log", (x,), out_types=[R.Tensor(("n", 4))])\ny = R.exp(x)\nreturn y'
    check_unchanged(Canonicalise(), F32, body)
