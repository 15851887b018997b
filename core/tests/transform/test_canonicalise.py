"""What ``Canonicalise`` removes, joins and swaps, and what it must leave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.transform import Canonicalise, evaluate_function

F32 = 'x: R.Tensor(("n", 4), "float32")'
I32 = 'x: R.Tensor((3,), "int32")'
BOOL = 'x: R.Tensor((3,), "bool")'
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
    "concat of one": (F32, "y = R.concat(x, axis=1)"),
    "split into one": (F32, "y = R.split(x, sections=(4,), axis=1)"),
}


@pytest.mark.parametrize("case", GONE)
def test_ops_that_change_nothing_go(case: str, rewrites: Any) -> None:
    params, body = GONE[case]
    reader = "logical_not" if params == BOOL else "abs"
    rewrites(Canonicalise(), params, f"{body}\nz = R.{reader}(y)\nreturn z, y", f"z = R.{reader}(x)\nreturn z, x")


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
def test_chains_become_one(case: str, rewrites: Any) -> None:
    params, before, after = JOINED[case]
    last = after.rpartition("\n")[2].partition(" ")[0]
    rewrites(Canonicalise(), params, f"{before}\nreturn {last}", f"{after}\nreturn {last}")


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
def test_what_changes_something_stays(case: str, leaves: Any) -> None:
    params, body = KEPT[case]
    leaves(Canonicalise(), params, f"{body}\nreturn y")


@pytest.mark.parametrize("op", ["add", "subtract"])
@pytest.mark.parametrize("zero", ["0.0", "-0.0"])
def test_signs_of_zeros_may_be_given_up(op: str, zero: str, main: Any) -> None:
    module = main(F32, f'y = R.{op}(x, R.const({zero}, "float32"))\nreturn y')
    after = Canonicalise(keep_signed_zeros=False)(module)
    assert not after["main"].bindings
    x = np.array([[-0.0, 0.0, np.nan, np.inf]], np.float32)
    np.testing.assert_array_equal(evaluate_function(after, "main", [x])[0], evaluate_function(module, "main", [x])[0])


def test_the_comparison_of_bits_sees_the_sign_of_a_zero(main: Any, same_bits: Any) -> None:
    module = main(F32, 'y = R.add(x, R.const(0.0, "float32"))\nreturn y')
    x = np.array([[-0.0, 0.0, 1.0, 2.0]], np.float32)
    same_bits(module, Canonicalise()(module), [x])
    with pytest.raises(AssertionError):
        same_bits(module, Canonicalise(keep_signed_zeros=False)(module), [x])


def test_a_removed_value_leaves_what_others_read(rewrites: Any) -> None:
    rewrites(
        Canonicalise(),
        F32,
        "a = R.negative(x)\nb = R.negative(a)\nc = R.add(a, b)\nreturn c",
        "a = R.negative(x)\nc = R.add(a, x)\nreturn c",
    )


def test_regions_are_simplified(rewrites: Any) -> None:
    region = "@R.region\ndef {name}(p: R.Tensor((3,))):\n    {body}\n"
    before = region.format(name="yes", body='q = R.multiply(p, R.const(1.0, "float32"))\n    return q')
    before += region.format(name="no", body="q = R.exp(p)\n    return q")
    after = region.format(name="yes", body="return p") + region.format(name="no", body="q = R.exp(p)\n    return q")
    call = "y = R.if_(c, x, regions=[yes, no])\nz = R.add(y, R.const({zero}, 'float32'))\nreturn {result}"
    rewrites(
        Canonicalise(),
        TWO,
        before + call.format(zero="-0.0", result="z"),
        after + "y = R.if_(c, x, regions=[yes, no])\nreturn y",
    )


def test_claimed_and_annotated_ops_are_left_alone(leaves: Any) -> None:
    body = 'R.func_attr({"Codegen": "some", "global_symbol": "f"})\na = R.negative(x)\ny = R.negative(a)\nreturn y'
    leaves(Canonicalise(), F32, body)
    leaves(Canonicalise(), F32, 'a = R.negative(x)\ny = R.negative(a, codegen="some")\nreturn y')


def test_impure_calls_stay(leaves: Any) -> None:
    body = 'a = R.call_packed("log", (x,), out_types=[R.Tensor(("n", 4))])\ny = R.exp(x)\nreturn y'
    leaves(Canonicalise(), F32, body)
