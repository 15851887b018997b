"""Cancelling pairs of transposes, remaining transposes, and the effect on results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core.ir import IRModule, tensor, verify
from byoc_core.ops import FunctionBuilder
from byoc_core.transform import MoveTransposes, evaluate_function
from byoc_core.transform.transposes_of_reshapes import reshape_first
from hypothesis import given
from hypothesis import strategies as st

from core.tests.ir_text import check_pass, check_unchanged, parse_main
from core.tests.transform.random_modules import check_same_bits

X = 'x: R.Tensor(("n", 2, 3, 4))'
THERE = "t = R.permute_dims(x, axes=(0, 2, 3, 1))\n"
BACK = "y = R.permute_dims(z, axes=(0, 3, 1, 2))"

MOVED = {
    "unary": (X, THERE + "z = R.exp(t)\n" + BACK, "z = R.exp(x)"),
    "a chain": (
        X,
        THERE + "a = R.exp(t)\nb = R.nn.relu(a)\nz = R.cast(b, dtype='float16')\n" + BACK,
        "a = R.exp(x)\nb = R.nn.relu(a)\nz = R.cast(b, dtype='float16')",
    ),
    "constants": (
        X,
        THERE + "a = R.add(t, R.const([1.0, 2.0], 'float32'))\nz = R.multiply(R.const(2.0, 'float32'), a)\n" + BACK,
        "a = R.add(x, R.const([[[[1.0]], [[2.0]]]], 'float32'))\nz = R.multiply(R.const(2.0, 'float32'), a)",
    ),
    "two values": (
        X + ", w: R.Tensor((1, 2, 1, 4))",
        THERE + "u = R.permute_dims(w, axes=(0, 2, 3, 1))\nz = R.subtract(t, u)\n" + BACK,
        "z = R.subtract(x, w)",
    ),
    "a scalar": (X + ", w: R.Tensor(())", THERE + "z = R.power(w, t)\n" + BACK, "z = R.power(w, x)"),
    "bias": (
        X + ", w: R.Tensor((2,))",
        THERE + "z = R.nn.bias_add(t, w, axis=-1)\n" + BACK,
        "z = R.nn.bias_add(x, w, axis=1)",
    ),
    "quantisation": (
        X + ', w: R.Tensor((2,)), v: R.Tensor((2,), "int8")',
        THERE + "a = R.quantize(t, w, v, axis=-1)\nz = R.dequantize(a, w, v, axis=3)\n" + BACK,
        "a = R.quantize(x, w, v, axis=1)\nz = R.dequantize(a, w, v, axis=1)",
    ),
    "quantisation by one scale": (
        X + ', w: R.Tensor(()), v: R.Tensor((), "int8")',
        THERE + "z = R.quantize(t, w, v)\n" + BACK,
        "z = R.quantize(x, w, v, axis=2)",
    ),
    "batch norm": (
        X + ", w: R.Tensor((2,))",
        THERE + "z = R.nn.batch_norm(t, w, w, w, w, axis=3)\n" + BACK,
        "z = R.nn.batch_norm(x, w, w, w, w, axis=1)",
    ),
    "concat": (
        X + ', w: R.Tensor(("n", 2, 3, 4))',
        THERE + "u = R.permute_dims(w, axes=(0, 2, 3, 1))\nz = R.concat(t, u, t, axis=-2)\n" + BACK,
        "z = R.concat(x, w, x, axis=3)",
    ),
    "split": (
        X,
        THERE + "z, v = R.split(t, sections=(1, 3), axis=2)\ny = R.permute_dims(z, axes=(0, 3, 1, 2))\n"
        "q = R.permute_dims(v, axes=(0, 3, 1, 2))\ny = R.concat(y, q, axis=-1)",
        None,
    ),
    "slice": (
        X,
        THERE + "z = R.strided_slice(t, axes=(3, 1), begin=(0, 1), end=(1, 3), strides=(1, 2))\n" + BACK,
        "z = R.strided_slice(x, axes=(1, 2), begin=(0, 1), end=(1, 3), strides=(1, 2))",
    ),
    "pad": (
        X,
        THERE + "z = R.nn.pad(t, pad_width=(0, 1, 2, 3, 4, 5, 6, 7))\n" + BACK,
        "z = R.nn.pad(x, pad_width=(0, 1, 6, 7, 2, 3, 4, 5))",
    ),
    "broadcast": (
        'x: R.Tensor(("n", 2, 1, 1))',
        THERE + 'z = R.broadcast_to(t, shape=("n", 3, 4, 2))\n' + BACK,
        'z = R.broadcast_to(x, shape=("n", 2, 3, 4))',
    ),
    "place": (
        X,
        THERE + "z = R.argmax(t, axis=3, keepdims=True)\n" + BACK,
        "z = R.argmax(x, axis=1, keepdims=True)",
    ),
    "place that drops its axis": (X, THERE + "y = R.argmax(t, axis=-1)", "y = R.argmax(x, axis=1)"),
    "a sum of integers": (
        'x: R.Tensor(("n", 2, 3, 4), "int32")',
        THERE + "y = R.sum(t, axis=(1, 2))",
        "y = R.sum(x, axis=(2, 3))",
    ),
    "less bytes": (
        X,
        THERE + "a = R.cast(t, dtype='float16')\ny = R.argmin(a, axis=1)",
        "a = R.cast(x, dtype='float16')\ny = R.argmin(a, axis=2)\ny_1 = R.permute_dims(y, axes=(0, 2, 1))",
    ),
    "another order": (
        X,
        THERE + "z = R.exp(t)\ny = R.permute_dims(z, axes=(0, 2, 1, 3))",
        "z = R.exp(x)\ny = R.permute_dims(z, axes=(0, 3, 2, 1))",
    ),
    "one of two readers goes back": (
        X,
        THERE + "z = R.exp(t)\ny = R.permute_dims(z, axes=(0, 3, 1, 2))\nr = R.reshape(z, shape=(-1,))\n"
        "s = R.reshape(y, shape=(-1,))\ny = R.add(r, s)",
        None,
    ),
    "tokens to an image": (
        "x: R.Tensor((1, 12, 8))",
        (
            "t = R.permute_dims(x, axes=(0, 2, 1))\nr = R.reshape(t, shape=(1, 8, 3, 4))\n"
            "y = R.permute_dims(r, axes=(0, 2, 3, 1))"
        ),
        "y = R.reshape(x, shape=(1, 3, 4, 8))",
    ),
    "an image to tokens, with a bias": (
        'x: R.Tensor(("n", 3, 4, 8)), w: R.Tensor((8,))',
        (
            "t = R.permute_dims(x, axes=(0, 3, 1, 2))\nz = R.nn.bias_add(t, w, axis=1)\n"
            "r = R.reshape(z, shape=('n', 8, 12))\ny = R.permute_dims(r, axes=(0, 2, 1))"
        ),
        "z = R.nn.bias_add(x, w, axis=3)\ny = R.reshape(z, shape=('n', 12, 8))",
    ),
    "transposes behind a reshape": (
        'x: R.Tensor(("n", 12, 8))',
        (
            "a = R.exp(x)\nr = R.reshape(a, shape=('n', 3, 4, 8))\nt = R.permute_dims(r, axes=(0, 3, 1, 2))\n"
            "z = R.nn.relu(t)\ny = R.permute_dims(z, axes=(0, 2, 3, 1))"
        ),
        "a = R.exp(x)\nr = R.reshape(a, shape=('n', 3, 4, 8))\nz = R.nn.relu(r)",
    ),
    "images of many tokens": (
        'x: R.Tensor(("n", "m", 8))',
        (
            "t = R.permute_dims(x, axes=(2, 1, 0))\nr = R.reshape(t, shape=(2, 4, 'm', 'n'))\n"
            "y = R.permute_dims(r, axes=(3, 2, 0, 1))"
        ),
        "y = R.reshape(x, shape=('n', 'm', 2, 4))",
    ),
    "hoisted": (
        'x: R.Tensor(("n", 3, 4))',
        "a = R.cast(x, dtype='float64')\nz = R.permute_dims(a, axes=(2, 0, 1))\ny = R.reshape(z, shape=(-1,))",
        "x_1 = R.permute_dims(x, axes=(2, 0, 1))\na = R.cast(x_1, dtype='float64')\ny = R.reshape(a, shape=(-1,))",
    ),
}


def _num_transposes(module: IRModule) -> int:
    return sum(binding.op.name == "permute_dims" for binding in module["main"].walk())


@pytest.mark.parametrize("case", [case for case in MOVED if MOVED[case][2] is not None])
def test_transposes_meet(case: str) -> None:
    params, before, after = MOVED[case]
    last = (after or "").rpartition("\n")[2].partition(" ")[0]
    check_pass(MoveTransposes(), params, f"{before}\nreturn y", f"{after}\nreturn {last}")


@pytest.mark.parametrize("case", [case for case in MOVED if MOVED[case][2] is None])
def test_fewer_transposes_are_left(case: str) -> None:
    params, body, _ = MOVED[case]
    module = parse_main(params, f"{body}\nreturn y")
    after = verify(MoveTransposes()(module))
    assert _num_transposes(after) < _num_transposes(module)
    x = np.arange(48, dtype=np.float32).reshape(2, 2, 3, 4)
    np.testing.assert_array_equal(evaluate_function(after, "main", [x])[0], evaluate_function(module, "main", [x])[0])


KEPT = {
    "nothing to meet": (X, THERE + "y = R.exp(t)"),
    "another reader": (X, THERE + "a = R.exp(t)\ny = R.reshape(t, shape=(-1,))\nreturn a, y"),
    "another value": (X + ', w: R.Tensor(("n", 3, 4, 2))', THERE + "a = R.add(t, w)\ny = R.reshape(a, shape=(-1,))"),
    "more bytes": (X, THERE + "y = R.cast(t, dtype='float64')"),
    "a vector": (X + ", w: R.Tensor((2,))", THERE + "z = R.add(t, w)\n" + BACK),
    "a sum of floats": (X, THERE + "z = R.sum(t, axis=(3,), keepdims=True)\n" + BACK),
    "softmax": (X, THERE + "z = R.nn.softmax(t, axis=3)\n" + BACK),
    "axes joined by a reshape": (
        X,
        (
            "t = R.permute_dims(x, axes=(0, 2, 1, 3))\nz = R.reshape(t, shape=('n', 6, 4))\n"
            "y = R.permute_dims(z, axes=(0, 2, 1))"
        ),
    ),
    "a shuffle of channels": (
        "x: R.Tensor((2, 12, 3, 5))",
        (
            "t = R.permute_dims(x, axes=(0, 2, 3, 1))\nr = R.reshape(t, shape=(2, 3, 5, 4, 3))\n"
            "y = R.permute_dims(r, axes=(0, 1, 2, 4, 3))"
        ),
    ),
    "heads": (
        "x: R.Tensor((2, 5, 12))",
        "a = R.exp(x)\nr = R.reshape(a, shape=(2, 5, 3, 4))\ny = R.permute_dims(r, axes=(0, 2, 1, 3))",
    ),
    "quantisation by blocks": (
        X + ', w: R.Tensor(("n", 3, 4, 1)), v: R.Tensor(("n", 3, 4, 1), "int8")',
        THERE + "z = R.quantize(t, w, v, axis=3, block_size=2)\n" + BACK,
    ),
    "a claimed op": (X, THERE + 'z = R.exp(t, codegen="some")\n' + BACK),
    "one element, axes unchanged": ("x: R.Tensor((1, 1))", "t = R.permute_dims(x, axes=(0, 1))\ny = R.exp(t)"),
    "axes unchanged, another reader": (X, "t = R.permute_dims(x, axes=(0, 1, 2, 3))\na = R.exp(t)\nreturn a, t"),
    "a product of a transposed matrix": (
        'x: R.Tensor(("n", 4)), w: R.Tensor((3, 4))',
        "t = R.permute_dims(w)\ny = R.matmul(x, t)",
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_other_transposes_stay(case: str) -> None:
    params, body = KEPT[case]
    check_unchanged(MoveTransposes(), params, body if "return" in body else f"{body}\nreturn y")


ROUNDED = {
    "softmax": (X, THERE + "z = R.nn.softmax(t, axis=-1)\n" + BACK, "z = R.nn.softmax(x, axis=1)"),
    "mean": (X, THERE + "y = R.mean(t, axis=(1, 2))", "y = R.mean(x, axis=(2, 3))"),
    "dense": (
        'x: R.Tensor(("n", 4)), w: R.Tensor((3, 4))',
        "t = R.permute_dims(w)\ny = R.matmul(x, t)",
        "y = R.nn.dense(x, w)",
    ),
    "matmul": (
        'x: R.Tensor(("n", 4)), w: R.Tensor((4, 3))',
        "t = R.permute_dims(w)\ny = R.nn.dense(x, t)",
        "y = R.matmul(x, w)",
    ),
}


@pytest.mark.parametrize("case", ROUNDED)
def test_sums_in_another_order_are_permitted(case: str) -> None:
    params, before, after = ROUNDED[case]
    last = after.partition(" ")[0]
    check_pass(MoveTransposes(keep_bits=False), params, f"{before}\nreturn y", f"{after}\nreturn {last}")
    check_unchanged(MoveTransposes(), params, f"{before}\nreturn y")


@given(data=st.data())
def test_a_reshape_may_come_first(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 1, 2, 3, 4, 6]), min_size=1, max_size=5)))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    target, rest = [], math.prod(shape)
    while rest > 1:
        target.append(data.draw(st.sampled_from([size for size in range(1, rest + 1) if rest % size == 0])))
        rest //= target[-1]
    found = reshape_first(shape, order, target)
    x = np.arange(math.prod(shape)).reshape(shape)
    if found is not None:
        first, then = np.array(found[0], np.int64), found[1]
        np.testing.assert_array_equal(x.reshape(first).transpose(then), x.transpose(order).reshape(target))
    elif len(target) == 1:  # all axes are joined, so only axes already in order may stay
        long_axes = [axis for axis in order if shape[axis] != 1]
        assert long_axes != sorted(long_axes)


class _Network:
    """A strategy for a function of transposes, ops permitting the passage of transposes, and other ops."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.fb: Any = FunctionBuilder("main")
        self.values: list[Any] = [
            self.fb.param("x", tensor((2, 3, 4))),
            self.fb.param("v", tensor(("n", 2, 2))),
        ]

    def module(self) -> IRModule:
        for _ in range(self.draw(st.integers(1, 20))):
            makers = (self.transpose, self.transpose, self.unary, self.binary, self.reshaped, self.other)
            made = self.draw(st.sampled_from(makers))
            self.values.append(made(self.draw(st.sampled_from(self.values[-4:]))))
        results = self.draw(st.lists(st.sampled_from(self.values), max_size=2))
        return IRModule({"main": self.fb.finish(self.values[-1], *results)}, self.fb.constants)

    def transpose(self, value: Any) -> Any:
        axes = self.draw(st.sampled_from(((0, 1, 2), (0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0))))
        return self.fb.emit("permute_dims", value, axes=axes)

    def unary(self, value: Any) -> Any:
        return self.fb.emit(self.draw(st.sampled_from(("negative", "abs", "tanh"))), value)

    def binary(self, value: Any) -> Any:
        kind = self.draw(st.sampled_from(("value", "scalar", "vector", "concat", "one element")))
        if kind == "one element":
            one = self.fb.emit("max", value, axis=(0, 1, 2), keepdims=True)
            return self.fb.emit("add", value, self.unary(self.transpose(one)))
        if kind == "concat":
            axis = self.draw(st.integers(-3, 2))
            grown = self.fb.emit("concat", value, value, axis=axis)
            return self.fb.emit("strided_slice", grown, axes=(axis,), begin=(1,), end=(3,), strides=(1,))
        if kind == "value":
            fitting = [other for other in self.values if other.type == value.type]
            return self.fb.emit("add", value, self.draw(st.sampled_from(fitting)))
        size = value.type.shape[-1]
        numbers = np.arange(size if kind == "vector" and isinstance(size, int) else 1, dtype=np.float32)
        return self.fb.emit("multiply", numbers if kind == "vector" else np.float32(2), value)

    def reshaped(self, value: Any) -> Any:
        """Return a transpose of two axes joined to one, perhaps with functions between."""
        first, middle, last = value.type.shape
        if self.draw(st.booleans()):
            joined, target = (first, middle * last), (middle, last, first)
        else:
            joined, target = (first * middle, last), (last, first, middle)
        steps = ["reshape", "permute_dims", "reshape"]
        for step in steps:
            shapes = {"shape": joined if value.type.rank == 3 else target}
            value = self.fb.emit(step, value, **({"axes": (1, 0)} if step == "permute_dims" else shapes))
            if self.draw(st.booleans()):
                value = self.unary(value)
        return value

    def other(self, value: Any) -> Any:
        kind = self.draw(st.sampled_from(("flat", "max", "pad", "bias", "place")))
        axis = self.draw(st.integers(-3, 2))
        if kind == "flat":
            return self.fb.emit("reshape", self.fb.emit("reshape", value, shape=(-1,)), shape=value.type.shape)
        if kind == "max":
            return self.fb.emit("subtract", value, self.fb.emit("max", value, axis=(axis,), keepdims=True))
        if kind == "pad":
            padded = self.fb.emit("nn.pad", value, pad_width=(0, 1, 0, 0, 1, 0), pad_value=0.5)
            return self.fb.emit("strided_slice", padded, axes=(0, 2), begin=(1, 0), end=(9, 3), strides=(1, 1))
        if kind == "bias" and isinstance(value.type.shape[axis], int):
            bias = np.arange(value.type.shape[axis], dtype=np.float32)
            return self.fb.emit("nn.bias_add", value, bias, axis=axis)
        place = self.fb.emit("cast", self.fb.emit("argmin", value, axis=axis, keepdims=True), dtype="float32")
        return self.fb.emit("add", value, place)


@given(data=st.data())
def test_transposes_never_grow_and_every_bit_stays(data: st.DataObject) -> None:
    module = _Network(data.draw).module()
    after = verify(MoveTransposes()(module))
    assert _num_transposes(after) <= _num_transposes(module)
    assert _moved_bytes(after) <= _moved_bytes(module)
    assert MoveTransposes()(after) is after
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    inputs = [generator.normal(size=shape).astype(np.float32) for shape in ((2, 3, 4), (3, 2, 2))]
    check_same_bits(module, after, inputs)


def _moved_bytes(module: IRModule) -> int:
    moved = 0
    for binding in module["main"].walk():
        if binding.op.name == "permute_dims":
            type_ = binding.results[0].type.substitute({"n": 3})  # type: ignore[union-attr]
            assert isinstance(type_.nbytes, int)
            moved += type_.nbytes
    return moved
